// A page that takes the place of this one and compares a file there: a file cannot be carried over by an address, and it
// is not sent.

let shown = 0;

// replace puts a fetched page in place of this one, under its own address, and compares the file there.
export async function replace(response, file) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const script = page.querySelector('script[type="module"]');
  const { pathname } = location;
  history.pushState(null, "", response.url);
  addEventListener("popstate", () => {
    if (location.pathname === pathname) { // back to this page; a link within the new one leaves the path
      location.reload();
    }
  });
  document.title = page.title;
  document.documentElement.lang = page.documentElement.lang;
  document.body.replaceWith(page.body);
  scrollTo(0, 0);
  if (script) {
    const { check } = await import(`${script.src}#${++shown}`); // the fragment makes the script run again for each page
    check(file);
  }
}
