// The SHA-256 of one file, in pieces, away from the page's thread. It is the
// source of assets/hash.worker.js; TestBundles holds the two together.
//
// In: a File. Out: {read} after each piece (bytes so far), then {sha256}, or
// {error} with the name of what went wrong. One file at a time.

import { createSHA256 } from "hash-wasm";

/*! The SHA-256 below is of hash-wasm 4.13.0, https://github.com/Daninet/hash-wasm

MIT License

Copyright (c) 2020 Dani Biró

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
const piece = 4 * 1024 * 1024;

async function sha256(file) {
  const hasher = await createSHA256();
  hasher.init();
  // A folder may have the size 0, in WebKit it always does: only reading it tells it from an empty file.
  if (file.size === 0 && (await file.arrayBuffer()).byteLength > 0) {
    throw new DOMException("the file became longer", "NotReadableError");
  }
  for (let read = 0; read < file.size; ) {
    const bytes = new Uint8Array(await file.slice(read, read + piece).arrayBuffer());
    if (bytes.length === 0) {
      throw new DOMException("the file became shorter", "NotReadableError");
    }
    hasher.update(bytes);
    read += bytes.length;
    postMessage({ read });
  }
  return hasher.digest("hex");
}

onmessage = async ({ data: file }) => {
  try {
    postMessage({ sha256: await sha256(file) });
  } catch (error) {
    postMessage({ error: error.name });
  }
};
