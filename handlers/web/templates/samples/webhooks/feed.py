import json
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request

base, key, company = (os.environ["INTEGRITY_" + name]
                      for name in ("BASE_URL", "API_KEY", "COMPANY"))
db = sqlite3.connect("feed.db")
db.executescript("""
    CREATE TABLE IF NOT EXISTS event (id TEXT PRIMARY KEY, body TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS position (
        company TEXT PRIMARY KEY, sequence INTEGER NOT NULL, epoch INTEGER NOT NULL);
""")
more = True
while more:
    read = db.execute("SELECT sequence, epoch FROM position WHERE company = ?",
                      [company]).fetchone()
    query = {"companyReference": company, "limit": 1000, "after": read[0] if read else 0}
    if read:
        query["epoch"] = read[1]
    request = urllib.request.Request(
        base + "/api/v1/integrity/changes?" + urllib.parse.urlencode(query),
        headers={"Authorization": "Bearer " + key})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as refused:
        raise SystemExit(f"{refused.code} {refused.read().decode()}")
    except OSError as error:
        raise SystemExit(f"no answer, run it again later: {error}")
    page = answer["data"]
    with db:  # one transaction
        db.executemany(
            "INSERT INTO event VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
            [(event["id"], json.dumps(event)) for event in page["events"]])
        db.execute("REPLACE INTO position VALUES (?, ?, ?)",
                   [company, page["nextCursor"], answer["meta"]["epoch"]])
    for event in page["events"]:
        print(event["sequence"], event["type"], event["publicId"])
    more = page["hasMore"]
print(db.execute("SELECT count(*) FROM event").fetchone()[0], "events")
