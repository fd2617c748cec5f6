package clientcmd

import (
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

func (a *app) manifestCommand() *cobra.Command {
	return cli.Group(
		"manifest", "List the files of a directory, and check them later", a.manifestCreateCommand(),
		a.manifestVerifyCommand(),
	)
}

// manifestSummary describes a written manifest.
type manifestSummary struct {
	SHA256     string `json:"sha256"`
	Files      int    `json:"files"`
	TotalBytes int64  `json:"totalBytes"`
}

func summarize(m domain.Manifest) manifestSummary {
	sum := m.SHA256()
	return manifestSummary{hex.EncodeToString(sum[:]), len(m.Files), m.Total()}
}

func (s manifestSummary) rows() []cli.Row {
	return []cli.Row{
		cli.Rowf("sha256", "%s", s.SHA256), cli.Rowf("files", "%d", s.Files), cli.Rowf("bytes", "%d", s.TotalBytes),
	}
}

func (a *app) manifestCreateCommand() *cobra.Command {
	c := manual().Command("manifest create")
	output := c.Flags().StringP(
		"output", "o", "", "file to write the manifest to (- for standard output); with a file the manifest's hash is "+
			"printed",
	)
	asJSON := c.Flags().Bool("json", false, "print JSON (with -o)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *output == "-" {
			*output = ""
		}
		if *asJSON && *output == "" {
			return say.Errorf("--json: the manifest is JSON already; give -o FILE to print its hash as JSON")
		}
		d, err := openDirectory(args[0], *output)
		if err != nil {
			return err
		}
		defer d.root.Close()
		m, err := a.list(d)
		if err != nil {
			return err
		}
		text := m.Canonical()
		// Check that others can read the manifest.
		if _, _, err := domain.ReadManifest(new(strictjson.Meter), text); err != nil {
			return say.Errorf("%s: %w", args[0], err)
		}
		if *output == "" {
			if cli.IsTerminal(a.Out) {
				text = append(text, '\n')
			}
			return a.WriteRaw(text)
		}
		if err := os.WriteFile(*output, text, 0o644); err != nil { //nolint:gosec // a manifest is meant to be shared
			return err
		}
		s := summarize(m)
		return a.Print(*asJSON, s, a.Rows(s.rows()...))
	}
	return c
}

// ComparedDirectory lists the differences between a directory and a manifest. All lists are sorted.
type ComparedDirectory struct {
	manifestSummary
	Matches bool     `json:"matches"`
	Changed []string `json:"changed"`
	Missing []string `json:"missing"`
	Extra   []string `json:"extra"`
}

func (a *app) manifestVerifyCommand() *cobra.Command {
	c := manual().Command("manifest verify")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	ignoreExtra := c.Flags().Bool("ignore-extra", false, "allow files that the manifest does not list")
	c.RunE = func(c *cobra.Command, args []string) error {
		m, err := readManifest(c.InOrStdin(), args[1])
		if err != nil {
			return err
		}
		d, err := openDirectory(args[0], args[1])
		if err != nil {
			return err
		}
		defer d.root.Close()
		result, err := a.compareDirectory(m, d)
		if err != nil {
			return err
		}
		result.Matches = len(result.Changed)+len(result.Missing) == 0 && (*ignoreExtra || len(result.Extra) == 0)
		return a.answer(*asJSON, result, a.comparedText(result), result.Matches)
	}
	return c
}

// readManifest reads a manifest from a file, or from standard input if path is "-".
func readManifest(stdin io.Reader, path string) (domain.Manifest, error) {
	r := stdin
	if path != "-" {
		f, err := keyfiles.OpenRegular(path)
		if err != nil {
			return domain.Manifest{}, err
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, domain.MaxManifestBytes+1))
	if err != nil {
		return domain.Manifest{}, say.Errorf("%s: %w", path, err)
	}
	m, _, err := domain.ReadManifest(new(strictjson.Meter), text)
	var refused *domain.Error
	if errors.As(err, &refused) {
		// Not a refusal: without a manifest there is nothing to compare with.
		lines := []say.Sentence{say.Sentencef("%s is not a manifest: %s", path, refused.Said())}
		for _, f := range refused.Fields {
			lines = append(lines, say.Sentencef("  %s %s", f.Pointer, f.Said()))
		}
		return domain.Manifest{}, say.Errorf("%s", say.Join(lines, "\n"))
	}
	return m, err
}

// compareDirectory reads only files that the manifest lists, and only if their size matches.
func (a *app) compareDirectory(m domain.Manifest, d directory) (ComparedDirectory, error) {
	result := ComparedDirectory{manifestSummary: summarize(m), Changed: []string{}, Missing: []string{}, Extra: []string{}}
	there := map[string]int64{}
	for _, f := range d.files {
		there[f.Path] = f.Size
	}
	progress, done := a.progress(d.name, m.Total())
	defer done()
	for _, want := range m.Files {
		size, ok := there[want.Path]
		delete(there, want.Path)
		switch {
		case !ok:
			result.Missing = append(result.Missing, want.Path)
		case size != want.Size:
			result.Changed = append(result.Changed, want.Path)
		default:
			h, err := d.hash(want.Path, progress)
			if err != nil {
				return result, err
			}
			if h.sha256 != want.SHA256 {
				result.Changed = append(result.Changed, want.Path)
			}
		}
	}
	result.Extra = slices.AppendSeq(result.Extra, maps.Keys(there))
	for _, list := range [][]string{result.Changed, result.Missing, result.Extra} {
		slices.Sort(list)
	}
	return result, nil
}

func (a *app) comparedText(r ComparedDirectory) string {
	rows := r.rows()
	for _, list := range []struct {
		word  say.Word
		paths []string
	}{{say.Word("changed"), r.Changed}, {say.Word("missing"), r.Missing}, {say.Word("extra"), r.Extra}} {
		for _, path := range list.paths {
			rows = append(rows, cli.Rowf(list.word, "%q", path))
		}
	}
	verdict := a.Sayf("The directory matches the manifest.")
	if !r.Matches {
		verdict = a.Sayf("The directory does not match the manifest.")
	}
	return a.Rows(rows...) + verdict + "\n"
}

// directory is an open directory and the files in and below it, by path.
type directory struct {
	name  string
	root  *os.Root              // os.Root never leaves the directory, even if a subdirectory is replaced by a link
	files []domain.ManifestFile // without hashes
}

// openDirectory lists the files in and below a directory, except the file named by except. It rejects anything that is
// neither a regular file nor a directory, and names all of them in one error. The caller closes root.
func openDirectory(name, except string) (directory, error) {
	d := directory{name: name}
	if info, err := os.Lstat(name); err != nil {
		return d, err
	} else if !info.IsDir() {
		return d, say.Errorf("%s must be a directory, not a file or a symbolic link", name)
	}
	var excepted os.FileInfo
	if except != "" && except != "-" {
		var err error
		if excepted, err = os.Stat(except); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return d, err
	}
	var refused []say.Sentence
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.Type()&fs.ModeSymlink != 0:
			refused = append(refused, because(path, say.Sentencef("it is a symbolic link")))
		case !entry.Type().IsRegular():
			refused = append(refused, because(path, say.Sentencef("it is not a regular file")))
		case excepted == nil || !os.SameFile(info, excepted):
			d.files = append(d.files, domain.ManifestFile{Path: path, Size: info.Size()})
		}
		return nil
	})
	if err == nil {
		err = unlistable(name, refused)
	}
	if err != nil {
		root.Close()
		return d, err
	}
	d.root = root
	slices.SortFunc(d.files, func(a, b domain.ManifestFile) int { return strings.Compare(a.Path, b.Path) })
	return d, nil
}

// list creates the manifest of all files of a directory.
func (a *app) list(d directory) (domain.Manifest, error) {
	var m domain.Manifest
	var refused []say.Sentence
	var total int64
	for _, f := range d.files {
		if err := domain.CheckManifestFile(f.Path, f.Size); err != nil {
			refused = append(refused, because(f.Path, err))
		}
		total += f.Size
	}
	if err := unlistable(d.name, refused); err != nil {
		return m, err
	}
	switch {
	case len(d.files) == 0:
		return m, say.Errorf("%s holds no files", d.name)
	case len(d.files) > domain.MaxManifestFiles:
		return m, say.Errorf("%s holds %d files; a manifest lists at most %d", d.name, len(d.files), domain.MaxManifestFiles)
	case total > domain.MaxManifestTotal:
		return m, say.Errorf("%s holds %d bytes; a manifest covers at most %d", d.name, total, domain.MaxManifestTotal)
	}
	progress, done := a.progress(d.name, total)
	defer done()
	for _, f := range d.files {
		h, err := d.hash(f.Path, progress)
		if err != nil {
			return m, err
		}
		m.Files = append(m.Files, domain.ManifestFile{Path: f.Path, Size: h.size, SHA256: h.sha256})
	}
	return m, nil
}

func (d directory) hash(path string, progress io.Writer) (hashed, error) {
	f, err := d.root.OpenFile(path, os.O_RDONLY|system.NoFollow|system.NonBlock, 0)
	if err != nil {
		return hashed{}, err
	}
	defer f.Close()
	return hashOpen(f, path, progress)
}

// unlistable returns an error that names the first twenty files that prevent a manifest.
func unlistable(name string, files []say.Sentence) error {
	if len(files) == 0 {
		return nil
	}
	var more say.Sentence
	if n := len(files) - 20; n > 0 {
		files, more = files[:20], say.Sentencef("\n  and %d more", n)
	}
	return say.Errorf("%s cannot be listed in a manifest:\n%s%s", name, say.Join(files, "\n"), more)
}

func because(path string, what any) say.Sentence { return say.Sentencef("  %q: %s", path, what) }
