/* Line icons of one weight, 16 units wide. They are decoration: what they mean stands beside them or in a label. */
import type { ReactNode } from "react";

function icon(children: ReactNode) {
  return function Icon({ className = "size-4" }: { className?: string }) {
    return (
      <svg
        viewBox="0 0 16 16"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        strokeLinejoin="round"
        aria-hidden="true"
        className={`shrink-0 ${className}`}
      >
        {children}
      </svg>
    );
  };
}

export const Executions = icon(<path d="M2.5 4h8M2.5 8h11M2.5 12h6" />);
export const Workflows = icon(
  <>
    <rect x="2" y="6" width="4" height="4" rx="1" />
    <rect x="10.5" y="2" width="3.5" height="3.5" rx="1" />
    <rect x="10.5" y="10.5" width="3.5" height="3.5" rx="1" />
    <path d="M6 8h2.2m0 0V3.8h2.3M8.200 8v4.200h2.3" />
  </>,
);
export const Letters = icon(
  <>
    <rect x="2" y="3.500" width="12" height="9" rx="1.500" />
    <path d="m2.500 5 5.500 4 5.500-4" />
  </>,
);
export const Workers = icon(
  <>
    <rect x="2.500" y="3" width="11" height="4" rx="1" />
    <rect x="2.500" y="9" width="11" height="4" rx="1" />
    <path d="M5 5h.01M5 11h.01" />
  </>,
);
export const Search = icon(
  <>
    <circle cx="7" cy="7" r="4.200" />
    <path d="m10.200 10.200 3.300 3.300" />
  </>,
);
export const Close = icon(<path d="m4 4 8 8m0-8-8 8" />);
export const Copy = icon(
  <>
    <rect x="5.500" y="5.500" width="8" height="8" rx="1.500" />
    <path d="M10.500 5.500v-1.500a1.500 1.500 0 0 0-1.500-1.500h-5A1.500 1.500 0 0 0 2.500 4v5a1.500 1.500 0 0 0 1.500 1.500h1.500" />
  </>,
);
export const Check = icon(<path d="m3 8.500 3.200 3.200L13 4.800" />);
export const Download = icon(<path d="M8 2.500v7.500m0 0L5 7m3 3 3-3M3 13h10" />);
export const Chevron = icon(<path d="m6 4 4 4-4 4" />);
export const Play = icon(<path d="M5 3.500v9l7.500-4.500z" />);
export const Retry = icon(<path d="M13 8a5 5 0 1 1-1.600-3.700M13 2.500v2.500h-2.500" />);
export const Stop = icon(<rect x="4" y="4" width="8" height="8" rx="1.200" />);
export const Sun = icon(
  <>
    <circle cx="8" cy="8" r="2.800" />
    <path d="M8 1.500v1.300m0 10.400v1.300M1.500 8h1.300m10.400 0h1.300M3.400 3.400l.9.9m7.400 7.400.9.9m0-9.200-.9.9m-7.400 7.400-.9.9" />
  </>,
);
export const Moon = icon(<path d="M13 9.700A5.500 5.500 0 0 1 6.300 3a5.500 5.500 0 1 0 6.700 6.700Z" />);
export const Auto = icon(
  <>
    <circle cx="8" cy="8" r="5.500" />
    <path d="M8 2.500v11a5.500 5.500 0 0 0 0-11Z" fill="currentColor" stroke="none" />
  </>,
);
export const Plus = icon(<path d="M8 3v10M3 8h10" />);
export const More = icon(<path d="M3.500 8h.01M8 8h.01M12.500 8h.01" strokeWidth="2.200" />);
export const Back = icon(<path d="M9.500 3.500 5 8l4.500 4.500" />);
export const Link = icon(
  <path d="M6.500 9.500 9.500 6.500M7.500 4.500l1-1a2.800 2.800 0 0 1 4 4l-1 1M8.500 11.500l-1 1a2.800 2.800 0 0 1-4-4l1-1" />,
);
export const Fit = icon(<path d="M2.500 6V2.500H6m4 0h3.500V6m0 4v3.500H10m-4 0H2.500V10" />);
export const Key = icon(
  <>
    <circle cx="5" cy="11" r="2.500" />
    <path d="m6.800 9.200 6-6m-2 2 1.500 1.500" />
  </>,
);
export const Edit = icon(<path d="m10.500 3 2.500 2.500-7.500 7.500H3v-2.500z" />);
export const Trash = icon(<path d="M3 4.500h10m-6.500-2h3M4.500 4.500l.5 8.500h6l.5-8.500" />);
