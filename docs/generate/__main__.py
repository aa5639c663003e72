"""`make docs`: bring the generated parts of the reference up to date."""

from __future__ import annotations

from docs.generate.pages import WITH_BLOCKS, filled


def main() -> None:
    for page in WITH_BLOCKS:
        before = page.read_text("utf-8")
        after = filled(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"wrote {page.name}")


if __name__ == "__main__":
    main()
