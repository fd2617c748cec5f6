package analysis

import (
	"fmt"
	"strings"
)

// Limits of what is unpacked of an archive, all of it counted and nothing of it kept but archives in archives.
const (
	maxUnpacked = 512 << 20 // bytes, over all levels
	maxEntries  = 100_000   // over all levels
	maxInner    = 32 << 20  // bytes of an archive in an archive, which is kept while it is read
	maxDepth    = 4         // archives in archives; the outermost is 1

	// A file that unpacks to ratioFrom bytes and highRatio times its size is a finding, and is given up there: unpacking
	// the rest would cost processor time and say nothing more.
	highRatio = 100
	ratioFrom = 10 << 20
	deepFrom  = 3 // depth
)

// archiveFile is what was found in an archive and in those that it holds.
type archiveFile struct {
	format string // "" where this version cannot read it
	err    error  // not all of it could be read

	packed, unpacked int64 // bytes of the file, and of all that it unpacks to
	claimed          int64 // bytes that its directory says it unpacks to
	entries          int
	depth            int

	nested, names *tally
	overlapping   bool
	encrypted     int64
	root          int64 // entry of the outermost archive that is being read
}

// archiveTypes are the archives and packages that can be looked into; closedArchives are those that cannot.
var (
	archiveTypes   = []string{"application/zip", "application/gzip", "application/x-tar", "application/x-bzip2", "application/zstd"}
	closedArchives = []string{"application/x-7z-compressed", "application/vnd.rar", "application/x-xz", "application/vnd.ms-cab-compressed", "application/x-cpio", "application/x-archive", "application/lzip", "application/x-rpm", "application/x-xar"}
)

// archive looks at an archive that was read. Nothing is clear where some of it was not.
func archive(look func(*archiveFile) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		a := s.archive()
		switch {
		case a == nil && s.declares(archiveTypes...):
			return inconclusive("The file is declared an archive but does not look like one.")
		case a == nil:
			return notApplicable("The file is no archive.")
		case a.format == "":
			return inconclusive("Archives of this format are not looked into.")
		}
		v := look(a)
		switch {
		case v.outcome == Clear && a.err != nil:
			return inconclusive("The archive cannot be read whole.")
		case v.outcome == Clear && a.encrypted > 0:
			return inconclusive("Entries of the archive are encrypted.", counted(Entries, "encrypted entry", a.encrypted)...)
		}
		return v
	}
}

func archiveNesting(a *archiveFile) verdict {
	if a.depth > deepFrom {
		return finding(High, "The archive holds archives in archives, several levels deep.", a.nested.list()...)
	}
	return a.nested.verdict("The archive holds no other archive.", Low, "The archive holds other archives.")
}

func archiveNames(a *archiveFile) verdict {
	if a.names.has(nameParent, nameAbsolute, nameDrive, nameLink, nameBackslash) {
		return finding(High, "The archive has names that lead out of its directory.", a.names.list()...)
	}
	return a.names.verdict("The archive's names stay within its directory.", Low, "The archive has unusual names.")
}

func archiveExpansion(a *archiveFile) verdict {
	facts := newTally(Bytes)
	facts.addAll("packed byte", a.packed, -1)
	facts.addAll("unpacked byte", a.unpacked, -1)
	if a.claimed > a.unpacked {
		facts.addAll("unpacked byte by the directory's own words", a.claimed, -1)
	}
	unpacked := max(a.unpacked, a.claimed)
	switch {
	case a.overlapping:
		return finding(High, "Entries of the archive overlap: it unpacks to more than it should.", facts.list()...)
	case unpacked >= ratioFrom && unpacked/max(a.packed, 1) >= highRatio:
		return finding(High, fmt.Sprintf("The archive unpacks to more than %d times its size.", highRatio), facts.list()...)
	case a.err != nil:
		return inconclusive("The archive cannot be read whole.", facts.list()...)
	}
	return verdict{Clear, None, "The archive unpacks to an ordinary size.", facts.list()}
}

// The names that an entry should not have.
const (
	nameParent    = "name with a .. segment"
	nameAbsolute  = "absolute name"
	nameDrive     = "name with a drive letter"
	nameBackslash = "name with a backslash"
	nameLink      = "link that leads out of the directory"
	nameControl   = "name with a control character"
	nameEmpty     = "empty name"
	nameTwice     = "name that comes twice"
	nameDevice    = "device or pipe"
)

// name looks at the name of an entry.
func (a *archiveFile) name(name string) {
	slashed := strings.ReplaceAll(name, `\`, "/")
	for segment := range strings.SplitSeq(slashed, "/") {
		if segment == ".." {
			a.names.add(nameParent, a.root)
			break
		}
	}
	if strings.HasPrefix(slashed, "/") {
		a.names.add(nameAbsolute, a.root)
	}
	if len(name) > 1 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z' {
		a.names.add(nameDrive, a.root)
	}
	if strings.Contains(name, `\`) {
		a.names.add(nameBackslash, a.root)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		a.names.add(nameControl, a.root)
	}
	if name == "" {
		a.names.add(nameEmpty, a.root)
	}
}

// link looks at where a link leads from the entry that it is.
func (a *archiveFile) link(name, target string) {
	slashed := strings.ReplaceAll(target, `\`, "/")
	depth := strings.Count(strings.TrimPrefix(name, "./"), "/")
	for segment := range strings.SplitSeq(slashed, "/") {
		switch segment {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			break
		}
	}
	if depth < 0 || strings.HasPrefix(slashed, "/") || len(target) > 1 && target[1] == ':' {
		a.names.add(nameLink, a.root)
	}
}
