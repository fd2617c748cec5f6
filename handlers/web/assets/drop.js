// A file may be dropped anywhere: the browser would otherwise open it in place of the page.

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");

// onDrop calls take with the list of files that were dropped, and marks an element while some are held over the page.
export function onDrop(marked, take) {
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
    if (carriesFiles(event)) {
      event.preventDefault();
      over = 0;
      marked.classList.remove("dragging");
      take([...event.dataTransfer.files]);
    }
  });
}
