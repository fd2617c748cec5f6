// Makes the invoices up to a number, in SQLite:
//
//   export INVOICE_DATABASE='Data Source=billing.db'
//   mcs -r:System.Data.dll -r:Mono.Data.Sqlite.dll Invoice.cs && mono Invoice.exe 1000
//
// Mono (Debian: mono-devel). On .NET the package Microsoft.Data.Sqlite has the same classes. Started again after any
// failure, it goes on after the last invoice that was committed.
using System;
using System.Security.Cryptography;
using System.Text;
using Mono.Data.Sqlite;

public static class Invoice
{
    public static void Main(string[] args)
    {
        using (var db = new SqliteConnection(Environment.GetEnvironmentVariable("INVOICE_DATABASE")))
        using (var sha256 = SHA256.Create())
        {
            db.Open();
            Execute(db, "PRAGMA synchronous = FULL"); // a commit survives a power failure
            Execute(db, "CREATE TABLE IF NOT EXISTS invoices (number INTEGER PRIMARY KEY, pdf BLOB NOT NULL)");
            var last = Convert.ToInt32(Execute(db, "SELECT coalesce(max(number), 0) FROM invoices"));
            for (var number = last + 1; number <= int.Parse(args[0]); number++)
            {
                // Your program makes the file here.
                var pdf = Encoding.UTF8.GetBytes($"%PDF-1.7\n% Invoice {number}\n%%EOF\n");
                var hash = BitConverter.ToString(sha256.ComputeHash(pdf)).Replace("-", "").ToLowerInvariant();
                using (var transaction = db.BeginTransaction()) // both rows, or none
                {
                    Execute(db, "INSERT INTO invoices (number, pdf) VALUES (@0, @1)", number, pdf);
                    Execute(db, "INSERT INTO integrity_outbox (company_reference, source, document_reference, version,"
                        + " sha256, size_bytes, mime_type) VALUES (@0, 'csharp', @1, 1, @2, @3, 'application/pdf')",
                        Environment.GetEnvironmentVariable("INTEGRITY_COMPANY"), $"invoice-{number}", hash, pdf.Length);
                    // One order in a hundred is cancelled at this point, to show that the rollback takes both rows.
                    if (number % 100 == 50)
                    {
                        transaction.Rollback();
                        continue;
                    }
                    transaction.Commit();
                }
                Console.WriteLine($"invoice-{number}"); // deliver the file now: a worker registers it
            }
        }
    }

    private static object Execute(SqliteConnection db, string statement, params object[] values)
    {
        using (var command = db.CreateCommand())
        {
            command.CommandText = statement;
            for (var i = 0; i < values.Length; i++) command.Parameters.AddWithValue("@" + i, values[i]);
            return command.ExecuteScalar();
        }
    }
}
