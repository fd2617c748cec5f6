<?php
$document = "The final bytes of an invoice\n";
$reference = 'inv-' . bin2hex(random_bytes(8));
// In MariaDB, with longblob below:
// new PDO('mysql:host=127.0.0.1;port=3306;dbname=billing;charset=utf8mb4', $user, $password)
$db = new PDO('sqlite:documents.db');
$db->exec('CREATE TABLE IF NOT EXISTS documents (reference varchar(64) PRIMARY KEY, content blob NOT NULL)');
$db->beginTransaction(); // both rows, or none
$db->prepare('INSERT INTO documents VALUES (?, ?)')->execute([$reference, $document]);
$db->prepare(
    "INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes,
    mime_type) VALUES (?, 'billing', ?, 1, ?, ?, 'text/plain')",
)->execute([getenv('INTEGRITY_COMPANY'), $reference, hash('sha256', $document), strlen($document)]);
$db->commit();
