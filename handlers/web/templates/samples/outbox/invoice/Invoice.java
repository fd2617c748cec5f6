// Makes the invoices up to a number, in MariaDB:
//
//   export INVOICE_DATABASE='jdbc:mariadb://127.0.0.1/billing?user=billing&password=secret'
//   javac Invoice.java && java -cp mariadb-java-client.jar:. Invoice 1000
//
// Java 17 with the JDBC driver of MariaDB (Debian: libmariadb-java, in /usr/share/java). Started again
// after any failure, it goes on after the last invoice that was committed.
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.HexFormat;

public final class Invoice {
    public static void main(String[] args) throws Exception {
        try (Connection db = DriverManager.getConnection(System.getenv("INVOICE_DATABASE"))) {
            db.createStatement().execute(
                "CREATE TABLE IF NOT EXISTS invoices (number int PRIMARY KEY, pdf longblob NOT NULL)");
            PreparedStatement addInvoice = db.prepareStatement("INSERT INTO invoices (number, pdf) VALUES (?, ?)");
            PreparedStatement addToOutbox = db.prepareStatement(
                "INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256,"
                + " size_bytes, mime_type) VALUES (?, 'java', ?, 1, ?, ?, 'application/pdf')");
            ResultSet last = db.createStatement().executeQuery("SELECT coalesce(max(number), 0) FROM invoices");
            last.next();
            db.setAutoCommit(false); // both rows of an invoice, or none
            for (int number = last.getInt(1) + 1; number <= Integer.parseInt(args[0]); number++) {
                // Your program makes the file here.
                byte[] pdf = ("%PDF-1.7\n% Invoice " + number + "\n%%EOF\n").getBytes(StandardCharsets.UTF_8);
                addInvoice.setInt(1, number);
                addInvoice.setBytes(2, pdf);
                addInvoice.executeUpdate();
                addToOutbox.setString(1, System.getenv("INTEGRITY_COMPANY"));
                addToOutbox.setString(2, "invoice-" + number);
                addToOutbox.setString(3, HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(pdf)));
                addToOutbox.setLong(4, pdf.length);
                addToOutbox.executeUpdate();
                // One order in a hundred is cancelled at this point, to show that the rollback takes both rows.
                if (number % 100 == 50) {
                    db.rollback();
                    continue;
                }
                db.commit();
                System.out.println("invoice-" + number); // deliver the file now: a worker registers it
            }
        }
    }
}
