// Hashes files in the worker, one at a time.

// A folder reads like no file. Some browsers give it the size 0, which is all that tells it from a file that cannot be read.
const unreadable = (file) => new Error(file.size === 0 ? "folder" : "unreadable");

// beginning reads at most this many bytes of a file. Of an empty one it reads the whole: a part of no bytes is not looked
// for on the disk, where a folder would be found out.
export async function beginning(file, most) {
  try {
    return new Uint8Array(await (file.size === 0 ? file : file.slice(0, most)).arrayBuffer());
  } catch {
    throw unreadable(file);
  }
}

// newHasher starts a worker of the script at an address.
export function newHasher(address) {
  let worker = null;
  let busy = false;

  function start() {
    worker?.terminate();
    const mine = new Worker(address, { type: "module" });
    mine.onerror = () => lost(mine);
    worker = mine;
    busy = false;
  }

  // lost has the next file hashed by another worker.
  function lost(mine) {
    if (worker === mine) {
      worker = null;
    }
  }

  // sha256 calls progress with the bytes read so far. One file at a time.
  function sha256(file, progress) {
    if (busy || worker === null) {
      start();
    }
    const mine = worker;
    busy = true;
    return new Promise((resolve, reject) => {
      mine.onmessage = ({ data }) => {
        if (worker !== mine) {
          return; // stopped, with this message already under way
        }
        if (data.read !== undefined) {
          progress(data.read);
          return;
        }
        busy = false;
        if (data.sha256 !== undefined) {
          resolve(data.sha256);
        } else {
          const away = data.error === "NotReadableError" || data.error === "NotFoundError";
          reject(away ? unreadable(file) : new Error("cannot-hash"));
        }
      };
      mine.onerror = () => {
        lost(mine);
        reject(new Error("cannot-hash"));
      };
      mine.postMessage(file);
    });
  }

  // stop ends a hash that is under way: its promise never settles.
  function stop() {
    if (busy) {
      start();
    }
  }

  start();
  return { sha256, stop };
}
