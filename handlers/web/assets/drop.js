// A file may be dropped anywhere: the browser would otherwise open it in place of the page.

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");

// onDrop calls take with the one file that was dropped, or refuse with the name of why there is no file. It marks an
// element while something is held over the page. An element that has left the page takes nothing.
export function onDrop(marked, take, refuse) {
  let over = 0;
  addEventListener("dragenter", (event) => {
    if (carriesFiles(event)) {
      over++;
      marked.classList.add("dragging");
    }
  });
  addEventListener("dragleave", (event) => {
    if (carriesFiles(event) && --over === 0) {
      marked.classList.remove("dragging");
    }
  });
  addEventListener("dragover", (event) => {
    if (carriesFiles(event)) {
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
    }
  });
  addEventListener("drop", (event) => {
    if (carriesFiles(event) && marked.isConnected) {
      event.preventDefault();
      over = 0;
      marked.classList.remove("dragging");
      const { files, items } = event.dataTransfer;
      if (files.length !== 1) {
        refuse("one-file");
      } else if ([...items].some((item) => item.webkitGetAsEntry?.()?.isDirectory)) {
        refuse("folder");
      } else {
        take(files[0]);
      }
    }
  });
}
