package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"path"
	"slices"
	"strings"

	"integrityledger/domain/say"

	"golang.org/x/crypto/cryptobyte"
	der "golang.org/x/crypto/cryptobyte/asn1"
)

// ReportFile is a file attached to an evidence report. The report's pages are words for people; the attached files are
// the evidence.
type ReportFile struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// MediaType returns the media type of the file.
func (f ReportFile) MediaType() string {
	switch path.Ext(f.Name) {
	case ".json":
		return "application/json"
	case tokenExtension:
		return "application/timestamp-reply" // RFC 3161, section 3.2
	case chainExtension:
		return "application/pem-certificate-chain" // RFC 8555, section 9.1
	default:
		return "text/plain"
	}
}

// FilePurpose is what a file of a report is for.
type FilePurpose string

// The purposes of files.
const (
	PublicReceiptFile FilePurpose = "receipt"
	EvidenceFile      FilePurpose = "evidence"
	ProofFile         FilePurpose = "proof"
	StampedProofFile  FilePurpose = "stamped"    // that a stamped checkpoint contains the record
	CheckpointFile    FilePurpose = "checkpoint" // stamped bytes
	TokenFile         FilePurpose = "token"
	ChainFile         FilePurpose = "chain" // pinned certificates of an authority
	TrustedKeysFile   FilePurpose = "keys"
)

// Purpose returns what the file is for, by its name. It is empty for a file that no report has.
func (f ReportFile) Purpose() FilePurpose {
	switch name, extension := f.Name, path.Ext(f.Name); {
	case strings.HasPrefix(name, receiptPrefix):
		return PublicReceiptFile
	case strings.HasPrefix(name, evidencePrefix):
		return EvidenceFile
	case name == trustedKeysName:
		return TrustedKeysFile
	case strings.HasPrefix(name, chainPrefix):
		return ChainFile
	case strings.HasPrefix(name, stampPrefix) && extension == ProofExtension:
		return StampedProofFile
	case strings.HasPrefix(name, stampPrefix) && extension == checkpointExtension:
		return CheckpointFile
	case strings.HasPrefix(name, stampPrefix) && extension == tokenExtension:
		return TokenFile
	case extension == ProofExtension:
		return ProofFile
	}
	return ""
}

// Names of the files in a report.
const (
	receiptPrefix       = "integrity-receipt-"
	evidencePrefix      = "integrity-evidence-"
	trustedKeysName     = "integrity-trusted-keys.json"
	stampPrefix         = "timestamp-" // then the number of the stamped checkpoint, from 1
	checkpointExtension = ".checkpoint"
	tokenExtension      = ".tsr"
	chainPrefix         = "authority-"
	chainExtension      = ".pem"
)

// MaxReportFiles is the largest number of files in a report: evidence, proof and trusted keys, a proof, a checkpoint
// and tokens for each stamped checkpoint, and the certificates of each authority.
const MaxReportFiles = 3 + MaxTimestamps*(2+2*MaxTokens)

// ReportContent is what the files of a report are made of.
type ReportContent struct {
	// Evidence is the public receipt or the organization's evidence, as the API answers it.
	Evidence []byte
	Private  bool   // Evidence is the organization's
	Proof    []byte // the transparency log proof, as the API answers it; empty without one
	// Proven is the envelope with Inclusion, whose leaf Timestamps prove to be in stamped checkpoints.
	Proven     Envelope
	Timestamps []Timestamp
	Trusted    *TrustedKeys // whose certificates of authorities are attached
	Published  []byte       // the published file of trusted keys
}

// ReportFiles returns the files of a record's report. Each stamped checkpoint has a transparency log proof that it
// contains the record, without references, and is repeated as a file of its own: the bytes that its tokens stamp.
func ReportFiles(publicID string, c ReportContent) []ReportFile {
	prefix := receiptPrefix
	if c.Private {
		prefix = evidencePrefix
	}
	files := []ReportFile{{prefix + publicID + ".json", c.Evidence}}
	if len(c.Proof) > 0 {
		files = append(files, ReportFile{publicID + ProofExtension, c.Proof})
	}
	var chains []ReportFile
	for i, t := range c.Timestamps {
		e, name := NewEnvelope(c.Proven.Signed), stampName(i)
		e.Inclusion = &Inclusion{c.Proven.Inclusion.Leaf, t.LeafIndex, t.TreeSize, t.Hashes, t.Checkpoint}
		files = append(
			files, ReportFile{name + ProofExtension, e.AppendProof(nil)},
			ReportFile{name + checkpointExtension, []byte(t.Checkpoint)},
		)
		for _, token := range t.Tokens {
			raw, ok := decodeOneSpelling(base64.StdEncoding, token.Token)
			if !ok {
				continue // a verifier would refuse it
			}
			files = append(files, ReportFile{name + "-" + token.Authority + tokenExtension, tokenReply(raw)})
			chain := ReportFile{chainPrefix + token.Authority + chainExtension, nil}
			if a, pinned := c.Trusted.Authority(token.Authority); pinned && !named(chains, chain.Name) {
				for _, certificate := range a.Certificates {
					block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
					chain.Content = append(chain.Content, block...)
				}
				chains = append(chains, chain)
			}
		}
	}
	return append(append(files, chains...), ReportFile{trustedKeysName, c.Published})
}

func stampName(i int) string { return fmt.Sprint(stampPrefix, i+1) }

func named(files []ReportFile, name string) bool {
	return slices.ContainsFunc(files, func(f ReportFile) bool { return f.Name == name })
}

// TokenIn returns the name of a token in a report, of the checkpoint that it stamps, and of the certificates of its
// authority. They are empty if no token has both beside it.
func TokenIn(files []ReportFile) (token, checkpoint, chain string) {
	for _, f := range files {
		stamp, authority, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(f.Name, stampPrefix), tokenExtension), "-")
		checkpoint, chain := stampPrefix+stamp+checkpointExtension, chainPrefix+authority+chainExtension
		if f.Purpose() == TokenFile && named(files, checkpoint) && named(files, chain) {
			return f.Name, checkpoint, chain
		}
	}
	return "", "", ""
}

// tokenReply wraps a token in a response of its authority (RFC 3161, section 2.4.2), which programs read by default.
func tokenReply(token []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) { b.AddASN1Int64(0) }) // granted
		b.AddBytes(token)
	})
	return b.BytesOrPanic() // the lengths fit
}

// tokenOf returns the token in such a response.
func tokenOf(reply []byte) (token []byte, ok bool) {
	s := cryptobyte.String(reply)
	var body, status cryptobyte.String
	var granted int64
	ok = s.ReadASN1(&body, der.SEQUENCE) && s.Empty() && body.ReadASN1(&status, der.SEQUENCE) &&
		status.ReadASN1Integer(&granted) && granted == 0 && status.Empty()
	return body, ok
}

// ErrNoReport means that none of the attached files is the evidence of a record.
var ErrNoReport = say.Errorf(
	"no evidence is attached to it: an evidence report has a file integrity-receipt-….json or " +
		"integrity-evidence-….json",
)

// ErrUnreadableReport means that the attached files of a PDF cannot be read.
var ErrUnreadableReport = say.Errorf(
	"the PDF cannot be read: it is damaged or encrypted, has a file that its list of attached files lacks, or exceeds a " +
		"limit",
)

// VerifyReport verifies the files of an evidence report like Verify: the receipt or the evidence, with the transparency
// log proof and the tokens beside it. Evidence that has a proof or tokens of its own is verified both with them and
// with the files. VerifyReport never uses the keys or certificates of the report. An error means that the files do not
// form one report.
func VerifyReport(files []ReportFile, trust *TrustedKeys, opts Options) (Findings, error) {
	r, err := openReport(files)
	if err != nil {
		return Findings{}, err
	}
	f := newFindings()
	f.note("The attached files were verified, not the text printed on the pages: compare it with the record above.")
	f.note("The keys and certificates attached to the report were not used: keys that come with evidence prove nothing.")
	e, err := ParseEnvelope(r.evidence) // a proof, a certificate or a statement is not the evidence of a report
	if err != nil {
		f.fail("signature", "%s", err)
		return f, nil
	}
	whole, problems := r.join(e)
	f.verifyEnvelope(whole, trust, opts)
	if e.Inclusion != nil || e.Timestamps != nil {
		other := newFindings()
		other.verifyEnvelope(complete(e, whole), trust, opts)
		for _, reason := range other.Reasons {
			if !slices.ContainsFunc(f.Reasons, func(s say.Sentence) bool { return s.String() == reason.String() }) {
				f.Reasons = append(f.Reasons, reason)
			}
		}
	}
	for _, p := range problems {
		f.fail("attachments", "%s", p)
	}
	for _, name := range r.unknown {
		f.note("The attached file %q was not verified.", shortened(name))
	}
	return f, nil
}

// report has the files of a report by their purpose.
type report struct {
	evidence []byte
	proof    *ReportFile
	stamps   []stampedFile
	unknown  []string // names of files with no purpose
}

// stampedFile is a stamped checkpoint in a report.
type stampedFile struct {
	proof, checkpoint *ReportFile
	tokens            []*ReportFile
}

// openReport sorts the files by name.
func openReport(files []ReportFile) (r report, err error) {
	if len(files) > MaxReportFiles {
		return r, say.Errorf("too many files are attached: at most %d", MaxReportFiles)
	}
	r.stamps = make([]stampedFile, MaxTimestamps)
	for i := range files {
		f, used := &files[i], true
		if named(files[:i], f.Name) {
			return r, say.Errorf("two attached files have the name %q", shortened(f.Name))
		}
		switch f.Purpose() {
		case PublicReceiptFile, EvidenceFile:
			if r.evidence != nil {
				return r, say.Errorf("evidence is attached twice")
			}
			r.evidence = append([]byte{}, f.Content...)
		case ProofFile:
			if used = r.proof == nil; used {
				r.proof = f
			}
		case StampedProofFile, CheckpointFile, TokenFile:
			used = r.stamped(f)
		case ChainFile, TrustedKeysFile:
		default:
			used = false
		}
		if !used {
			r.unknown = append(r.unknown, f.Name)
		}
	}
	if r.evidence == nil {
		return r, ErrNoReport
	}
	for i, s := range r.stamps {
		if s.proof != nil {
			continue
		}
		for _, f := range append(s.tokens, s.checkpoint) {
			if f != nil {
				return r, say.Errorf("the attached file %q needs the file %s", shortened(f.Name), stampName(i)+ProofExtension)
			}
		}
	}
	r.stamps = slices.DeleteFunc(r.stamps, func(s stampedFile) bool { return s.proof == nil })
	return r, nil
}

// stamped reports whether a file belongs to a stamped checkpoint, and keeps it there.
func (r *report) stamped(f *ReportFile) bool {
	for i := range r.stamps {
		s := &r.stamps[i]
		switch rest, ok := strings.CutPrefix(f.Name, stampName(i)); {
		case !ok:
		case rest == ProofExtension:
			s.proof = f
			return true
		case rest == checkpointExtension:
			s.checkpoint = f
			return true
		case strings.HasPrefix(rest, "-") && strings.HasSuffix(rest, tokenExtension) && len(s.tokens) < MaxTokens:
			s.tokens = append(s.tokens, f)
			return true
		}
	}
	return false
}

// complete adds the parts to e that it lacks and whole has.
func complete(e, whole Envelope) Envelope {
	if e.Inclusion == nil {
		e.Inclusion = whole.Inclusion
	}
	if e.Timestamps == nil {
		e.Timestamps = whole.Timestamps
	}
	return e
}

// join puts the proof and the tokens of the files into the envelope, in the place of its own. It also returns what is
// wrong with files that no later check sees.
func (r *report) join(e Envelope) (_ Envelope, problems []error) {
	wrong := func(f *ReportFile, err error) {
		problems = append(problems, say.Errorf("%s: %w", shortened(f.Name), err))
	}
	read := func(f *ReportFile) *Inclusion {
		p, err := ParseProof(f.Content)
		switch {
		case err != nil:
			wrong(f, err)
			return nil
		case p.Signed != e.Signed || p.References != nil && (e.References == nil || *p.References != *e.References):
			wrong(f, say.Errorf("it belongs to another record"))
			return nil
		}
		return p.Inclusion
	}
	if r.proof != nil {
		if found := read(r.proof); found != nil {
			e.Inclusion = found
		}
	}
	if len(r.stamps) == 0 {
		return e, problems
	}
	e.Timestamps = nil
	for _, s := range r.stamps {
		found := read(s.proof)
		if found == nil {
			continue
		}
		if s.checkpoint != nil && string(s.checkpoint.Content) != found.Checkpoint {
			wrong(s.checkpoint, say.Errorf("it is not the checkpoint in %s", s.proof.Name))
		}
		if e.Inclusion == nil {
			e.Inclusion = found
		}
		stamped := Timestamp{
			LeafIndex: found.LeafIndex, TreeSize: found.TreeSize, Hashes: found.Hashes, Checkpoint: found.Checkpoint,
		}
		for _, f := range s.tokens {
			raw, ok := tokenOf(f.Content)
			if !ok {
				wrong(f, say.Errorf("it must be the response of a timestamp authority that granted a token"))
				continue
			}
			_, authority, _ := strings.Cut(strings.TrimPrefix(f.Name, stampPrefix), "-")
			token := StampToken{
				Authority: strings.TrimSuffix(authority, tokenExtension), Token: base64.StdEncoding.EncodeToString(raw),
			}
			if parsed, err := parseToken(raw); err == nil { // otherwise the check of the token says why
				token.GenTime = FormatTime(parsed.GenTime)
			}
			stamped.Tokens = append(stamped.Tokens, token)
		}
		if len(stamped.Tokens) > 0 {
			e.Timestamps = append(e.Timestamps, stamped)
		}
	}
	return e, problems
}

// IsReport reports whether a file given to a verifier is a PDF, such as an evidence report.
func IsReport(file []byte) bool { return bytes.HasPrefix(file, []byte("%PDF-")) }
