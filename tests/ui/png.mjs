/* Smaller pictures: screens of a UI have few colours, so most of them fit into a palette without losing one. */
import { crc32, deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from("89504e470d0a1a0a", "hex");
const MOST_COLOURS = 256;

/** The same picture with a palette of at most 256 colours. Of more, each gets the nearest of the most frequent. */
export function shrunk(png) {
  const { width, height, pixels } = decoded(png);
  const counts = new Map();
  for (const colour of pixels) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const palette = [...counts]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_COLOURS)
    .map(([colour]) => colour);
  const places = new Map(palette.map((colour, place) => [colour, place]));
  for (const colour of counts.keys()) if (!places.has(colour)) places.set(colour, nearest(colour, palette));
  const rows = Buffer.alloc(height * (width + 1)); // each row begins with its filter: none
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) rows[y * (width + 1) + 1 + x] = places.get(pixels[y * width + x]);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([
    SIGNATURE,
    chunk("IHDR", header),
    chunk("PLTE", colours),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function nearest(colour, palette) {
  const distance = (other) =>
    [16, 8, 0].reduce((sum, shift) => sum + (((colour >> shift) & 255) - ((other >> shift) & 255)) ** 2, 0);
  let [best, least] = [0, Infinity];
  palette.forEach((other, place) => {
    const far = distance(other);
    if (far < least) [best, least] = [place, far];
  });
  return best;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

/** What the browser writes: 8 bits a channel, three or four of them, not interlaced. */
function decoded(png) {
  let [at, width, height, channels] = [8, 0, 0, 0];
  const parts = [];
  while (at < png.length) {
    const length = png.readUInt32BE(at);
    const type = png.toString("latin1", at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + length);
    if (type === "IHDR")
      [width, height, channels] = [data.readUInt32BE(0), data.readUInt32BE(4), data[9] === 6 ? 4 : 3];
    if (type === "IDAT") parts.push(data);
    at += length + 12;
  }
  const bytes = unfiltered(inflateSync(Buffer.concat(parts)), width * channels, height, channels);
  const pixels = new Uint32Array(width * height);
  for (let place = 0; place < pixels.length; place++) {
    const from = place * channels;
    pixels[place] = (bytes[from] << 16) | (bytes[from + 1] << 8) | bytes[from + 2];
  }
  return { width, height, pixels };
}

function unfiltered(raw, rowBytes, height, step) {
  const bytes = Buffer.alloc(rowBytes * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (rowBytes + 1)];
    for (let x = 0; x < rowBytes; x++) {
      const here = y * rowBytes + x;
      const left = x >= step ? bytes[here - step] : 0;
      const up = y ? bytes[here - rowBytes] : 0;
      const corner = y && x >= step ? bytes[here - rowBytes - step] : 0;
      bytes[here] = raw[y * (rowBytes + 1) + 1 + x] + [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
    }
  }
  return bytes;
}

function paeth(left, up, corner) {
  const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}
