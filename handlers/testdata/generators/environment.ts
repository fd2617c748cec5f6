/** Where the service is, with a key and a company of it. */
export function environment(): { address: string; key: string; company: string } {
  const { ADDRESS: address, KEY: key, COMPANY: company } = process.env;
  if (!address || !key || !company) throw new Error("ADDRESS, KEY and COMPANY are needed");
  return { address, key, company };
}

/** Tells the test the values that were read. */
export function report(me: unknown, record: unknown): void {
  console.log(JSON.stringify({ me, record }));
}
