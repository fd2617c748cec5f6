<?php
// Makes the invoices up to a number, in MariaDB:
//
//   export INVOICE_DATABASE='mysql:host=127.0.0.1;dbname=billing;charset=utf8mb4;user=billing;password=secret'
//   php invoice.php 1000
//
// Create the table of the outbox first: integrity outbox install --apply
// PHP 8 with the extension pdo_mysql (Debian: php-cli php-mysql). Started again after any failure, it
// goes on after the last invoice that was committed.
declare(strict_types=1);

$db = new PDO(getenv('INVOICE_DATABASE'), options: [PDO::ATTR_EMULATE_PREPARES => false]);
$db->exec('CREATE TABLE IF NOT EXISTS invoices (number int PRIMARY KEY, pdf longblob NOT NULL)');
$addInvoice = $db->prepare('INSERT INTO invoices (number, pdf) VALUES (?, ?)');
$addToOutbox = $db->prepare(
    "INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes,
    mime_type) VALUES (?, 'php', ?, 1, ?, ?, 'application/pdf')",
);
$last = (int) $db->query('SELECT max(number) FROM invoices')->fetchColumn();
for ($number = $last + 1; $number <= (int) $argv[1]; $number++) {
    $pdf = "%PDF-1.7\n% Invoice $number\n%%EOF\n"; // your program makes the file here
    $db->beginTransaction(); // both rows, or none
    $addInvoice->execute([$number, $pdf]);
    $addToOutbox->execute([getenv('INTEGRITY_COMPANY'), "invoice-$number", hash('sha256', $pdf), strlen($pdf)]);
    // One order in a hundred is cancelled at this point, to show that the rollback takes both rows.
    if ($number % 100 === 50) {
        $db->rollBack();
        continue;
    }
    $db->commit();
    echo "invoice-$number\n"; // deliver the file now: a worker registers it
}
