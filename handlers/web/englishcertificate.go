package web

// certificateEnglish gives t the words in which the page of a certificate differs
// from that of a record.
func certificateEnglish(t *texts) {
	t.CheckTitle = "Check a file against a certificate"
	t.CheckLead = "Compare the file that you were given with the one that was certified under this link."

	t.Dated = "Issued"
	t.StateCheck = "Validity"
	t.File = map[string]string{
		"match": "Exactly the certified file", "mismatch": "Not the certified file", "none": "No file compared",
		"hash-match": "The pasted hash matches; no file compared", "hash-mismatch": "The pasted hash does not match; no file compared",
	}
	t.Signature = map[string]string{
		"valid":   "Valid: this service signed the certificate (not the author's signature)",
		"invalid": "Not validated: it does not hold, belongs to another certificate, or its key is not trusted",
		"none":    "Not established",
	}
	t.State = map[string]string{
		"valid": "Valid: neither replaced nor revoked", "replaced": "Replaced by the certificate of a later version",
		"revoked": "Revoked by the organization", "none": "Not established",
	}
	t.DetailsTitle = "This certificate"
	t.NoDetails = "There is no validated certificate to show here."
	t.Declared = "The time of issue is that of this service's own clock, not an independent trusted timestamp."
	t.OfflineSteps = []string{
		"Ask the organization for the signed certificate, a JSON file. It alone can download it, and it may hand it on.",
		"Get the trusted keys through a channel that you trust, once, and keep them. A key inside a certificate cannot vouch for itself.",
		"Run the verifier, the program integrity, with the certificate, the keys and your file:",
	}
	t.OfflineNote = "This proves the kept signature and the match of the file. It does not show whether the certificate is still valid: for that, ask online."
	t.Outcomes = map[string]outcome{
		MatchCurrent: {"Your file matches a valid certificate",
			"Byte for byte, it is the file that the organization declared reviewed and approved. The signature of this service on the certificate is valid, and the certificate has been neither replaced nor revoked.",
			"That the content is true or lawful, who wrote it, how it was reviewed, or that it existed at a trusted time."},
		MatchHistorical: {"Your file matches, but its certificate was replaced",
			"Byte for byte, it is the certified file, and the signature of this service is valid. A later version of the document has been certified since: this certificate is not valid any more.",
			"What is different in the later version, or that this one was wrong. Nor authorship, truth or a trusted time."},
		HashMismatch: {"Your file is not the one of this certificate",
			"Its hash differs from the signed one. It may be another legitimate version, or the same document saved again: changing only metadata changes the hash.",
			"That somebody tampered with it, who changed it, or what the change means. Make sure that you have the file which came with this link."},
		RecordRevoked: {"Your file matches, but its certificate was revoked",
			"Byte for byte, it is the certified file, and the signature of this service is valid. The organization has revoked the certificate: ask whoever gave you the file before you rely on it.",
			"Why it was revoked: reasons are not published. A revocation does not say that the file was changed."},
		FileNotCompared: t.Outcomes[FileNotCompared],
		SignatureInvalid: {"The certificate could not be validated",
			"The signature of the certificate, the trust in its key or its binding to this link does not hold, or its signed text was erased. Its hash was not used and nothing was compared. Do not rely on this link; tell the operator of the service.",
			"Anything about your file: this is neither a match nor a mismatch."},
		NotFound: {"There is no certificate under this link",
			"The service does not know this identifier. Compare the address letter by letter with the one that you were given.",
			"Anything about your file: nothing was compared, and this is not a mismatch."},
		Unavailable: t.Outcomes[Unavailable],
		HashMatch: {"This hash matches. No file was compared",
			"The hash that you pasted equals the signed one of this certificate; its validity is shown below. Whether your file really has that hash was not checked here.",
			"Anything about a file. To compare the file itself, choose it below."},
		HashDiffers: {"This hash does not match. No file was compared",
			"The hash that you pasted differs from the signed one of this certificate. It may be that of another legitimate version, or a slip in copying.",
			"Anything about a file, nor that somebody tampered with one."},
	}
}
