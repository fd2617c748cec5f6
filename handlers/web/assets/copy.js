// Buttons that copy a sample. Without this script, or where the browser keeps
// the clipboard from pages, samples are selected and copied by hand.
const template = document.querySelector("#copy");
const said = document.querySelector("#copied");

if (navigator.clipboard) {
  for (const sample of document.querySelectorAll(".sample")) {
    const button = template.content.firstElementChild.cloneNode(true);
    const word = button.textContent;
    let back;
    button.addEventListener("click", async () => {
      let outcome = template.dataset.copied;
      try {
        await navigator.clipboard.writeText(sample.querySelector("code").textContent);
      } catch {
        outcome = template.dataset.refused;
      }
      button.textContent = said.textContent = outcome;
      clearTimeout(back);
      back = setTimeout(() => {
        button.textContent = word;
        said.textContent = "";
      }, 3000);
    });
    sample.prepend(button);
  }
}
