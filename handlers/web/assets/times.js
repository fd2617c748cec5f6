// Times as people read them: in their own zone, with UTC beside it. The exact time stays in the element's datetime.

// when writes a time of the service (RFC 3339).
export function when(text) {
  const at = new Date(text);
  const { locale } = document.querySelector("main").dataset; // another page may have taken the place of the first
  const format = (options) => new Intl.DateTimeFormat(locale, options).format(at);
  const both = { dateStyle: "long", timeStyle: "long" };
  const [own, utc] = [format(both), format({ ...both, timeZone: "UTC" })];
  if (own === utc) {
    return utc;
  }
  const day = (timeZone) => format({ dateStyle: "short", timeZone });
  return `${own} (${day() === day("UTC") ? format({ timeStyle: "long", timeZone: "UTC" }) : utc})`;
}

for (const time of document.querySelectorAll("time[datetime]")) {
  time.textContent = when(time.dateTime);
}
