// The search for a file: it is hashed here, and the search is for its SHA-256. Without this script a hash can be pasted.

import { onHash } from "./filehash.js";

onHash(document.querySelector("[data-hash]"), (file, hash) => {
  location.assign(`${document.querySelector("#find").form.action}?find=${hash}`);
});
