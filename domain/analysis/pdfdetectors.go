package analysis

import "bytes"

const (
	noPDF       = "The file is no PDF."
	pdfDeclared = "The file is declared a PDF but has no header of one."
	pdfBroken   = "The PDF cannot be read: it is damaged, or goes past a limit."
	pdfLocked   = "The PDF cannot be read without its password."

	unreadableObject = "unreadable object"
)

// pdfOnly looks at a PDF, whether its objects were read or not.
func pdfOnly(look func(*pdfFile) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		p := s.pdf()
		switch {
		case p == nil && s.declares("application/pdf"):
			return inconclusive(pdfDeclared)
		case p == nil:
			return notApplicable(noPDF)
		}
		return look(p)
	}
}

// pdfWalk looks at a PDF whose objects were read. Nothing is clear where some were not.
func pdfWalk(look func(*pdfFile) verdict) func(*subject) verdict {
	return pdfOnly(func(p *pdfFile) verdict {
		switch {
		case p.locked:
			return inconclusive(pdfLocked)
		case p.err != nil:
			return inconclusive(pdfBroken)
		}
		v := look(p)
		if v.outcome == Clear && p.unreadable > 0 {
			return inconclusive("Some objects of the PDF cannot be read.", counted(Objects, unreadableObject, p.unreadable)...)
		}
		return v
	})
}

func pdfStructure(s *subject) verdict {
	p := s.pdf()
	switch {
	case p == nil && s.declares("application/pdf"):
		return finding(Medium, pdfDeclared)
	case p == nil:
		return notApplicable(noPDF)
	}
	odd := newTally(Bytes)
	if at := s.pdfOffset(); at > 0 {
		odd.add("bytes before the header", 0)
	}
	if n := len(p.ends); n == 0 {
		odd.addAll("missing end-of-file marker", 1, -1)
	} else if at := p.ends[n-1]; s.trailing(at + int64(len("%%EOF"))) {
		odd.add("bytes after the last end-of-file marker", at)
	}
	if p.startxrefs == 0 {
		odd.addAll("missing startxref", 1, -1)
	}
	evidence := odd.list()
	if p.unreadable > 0 {
		evidence = append(evidence, counted(Objects, unreadableObject, p.unreadable)...)
	}
	switch {
	case p.locked:
		return inconclusive(pdfLocked, evidence...)
	case p.err != nil:
		return finding(Medium, pdfBroken, evidence...)
	case len(evidence) > 0:
		return finding(Low, "The PDF is not built as it should be.", evidence...)
	}
	return nothing("The PDF's structure can be read.")
}

// trailing reports whether anything but white space stands from an offset on.
func (s *subject) trailing(from int64) bool {
	buffer := make([]byte, 4096)
	for from < s.Size {
		n, err := s.Content.ReadAt(buffer[:min(int64(len(buffer)), s.Size-from)], from)
		if len(bytes.Trim(buffer[:n], "\x00\t\n\f\r ")) > 0 {
			return true
		}
		if err != nil {
			return false
		}
		from += int64(n)
	}
	return false
}

func pdfActive(p *pdfFile) verdict {
	some := "The PDF holds active content."
	if p.worst == Info {
		some = "The PDF holds links."
	}
	return p.active.verdict("The PDF holds no scripts and no actions that reach outside of it.", p.worst, some)
}

func pdfSignatures(p *pdfFile) verdict {
	switch {
	case p.signed.count() == 0:
		return nothing("The PDF holds no signatures.")
	case !p.signed.has("signature", "document timestamp"):
		return finding(Info, "The PDF holds signature fields without a signature.", p.signed.list()...)
	case !p.lastSignature:
		return finding(Low, "The PDF holds signatures, none of which covers the file to its end.", p.signed.list()...)
	}
	return finding(Info, "The PDF holds signatures.", p.signed.list()...)
}

func pdfUpdates(p *pdfFile) verdict {
	if len(p.ends) == 0 {
		return inconclusive("The PDF has no end-of-file marker.")
	}
	found := newTally(Bytes)
	for _, at := range p.ends {
		found.add("end-of-file marker", at)
	}
	revisions := len(p.ends)
	if p.err == nil {
		sections, linearized := 1, 0
		for _, entry := range p.context.Table {
			sections = max(sections, entry.Incr)
		}
		if p.context.Read.Linearized {
			linearized = 1
		}
		found.addAll("cross-reference section", int64(sections), -1)
		revisions = max(sections, revisions) - linearized
	}
	switch {
	case revisions > 1:
		return finding(Info, "The PDF was changed by appending to it.", found.list()...)
	case p.err != nil:
		return inconclusive("The PDF's cross-reference tables cannot be read.", found.list()...)
	}
	return verdict{Clear, None, "The PDF was written in one piece.", found.list()}
}

func pdfEncryption(p *pdfFile) verdict {
	switch {
	case p.locked:
		return finding(Medium, "The PDF is encrypted and needs a password to be opened.")
	case p.err != nil && p.encryptWord:
		return inconclusive("The PDF cannot be read; it seems to be encrypted.")
	case p.err != nil:
		return inconclusive(pdfBroken)
	case p.context.Encrypt != nil || p.context.E != nil:
		t := newTally(Objects)
		at := int64(-1)
		if p.context.Encrypt != nil {
			at = int64(p.context.Encrypt.ObjectNumber)
		}
		t.add("Encrypt", at)
		return finding(Low, "The PDF is encrypted; anyone can open it.", t.list()...)
	}
	return nothing("The PDF is not encrypted.")
}
