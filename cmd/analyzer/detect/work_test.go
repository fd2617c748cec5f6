package detect

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"runtime"
	"testing"

	"integrityledger/domain/analysis"

	"github.com/klauspost/compress/zstd"
)

// bombZeros is how many bytes each bomb unpacks to, far more than a small file may.
const bombZeros = 64 << 20

// bzipped is a bzip2 stream of 8 MiB of zeros; streams can be concatenated.
const bzipped = "QlpoOTFBWSZTWaI9S1gAQEBAgMAAAAQACCAAMMwFKaYBANiAgHi7kinChIUR6lrA"

type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// bombs are small files, one for each format that is unpacked, that contain bombZeros bytes of zeros.
func bombs(t *testing.T) map[string][]byte {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fill := func(w io.Writer) {
		_, err := io.Copy(w, &zeros{bombZeros})
		must(err)
	}
	packed := map[string]*bytes.Buffer{"gzip": {}, "zstd": {}, "zip": {}, "tar.gz": {}, "tar in zstd": {}, "nested": {}}
	gz, err := gzip.NewWriterLevel(packed["gzip"], gzip.BestCompression)
	must(err)
	fill(gz)
	must(gz.Close())
	zs, err := zstd.NewWriter(packed["zstd"])
	must(err)
	fill(zs)
	must(zs.Close())
	z := zip.NewWriter(packed["zip"])
	inner, err := z.Create("zeros")
	must(err)
	fill(inner)
	must(z.Close())
	tarred := func(w io.WriteCloser) {
		tw := tar.NewWriter(w)
		must(tw.WriteHeader(&tar.Header{Name: "zeros", Size: bombZeros, Mode: 0o600}))
		fill(tw)
		must(tw.Close())
		must(w.Close())
	}
	tarred(gzip.NewWriter(packed["tar.gz"]))
	zs, err = zstd.NewWriter(packed["tar in zstd"])
	must(err)
	tarred(zs)
	z = zip.NewWriter(packed["nested"])
	for _, name := range []string{"a.gz", "b.gz"} {
		inner, err = z.Create(name)
		must(err)
		_, err = inner.Write(packed["gzip"].Bytes())
		must(err)
	}
	must(z.Close())
	stream, err := base64.StdEncoding.DecodeString(bzipped)
	must(err)
	all := map[string][]byte{"bzip2": bytes.Repeat(stream, bombZeros/(8<<20))}
	for name, b := range packed {
		all[name] = b.Bytes()
	}
	return all
}

// TestWorkOfBombs counts the unpacked bytes: unpacking stops as soon as a bomb of any format is recognised.
func TestWorkOfBombs(t *testing.T) {
	for name, content := range bombs(t) {
		t.Run(name, func(t *testing.T) {
			size := int64(len(content))
			s := newSubject(Input{Content: bytes.NewReader(content), Size: size})
			a := s.archive()
			if a == nil {
				t.Fatal("no archive")
			}
			if most := max(ratioFrom, size*highRatio); a.unpacked > most || a.unpacked < ratioFrom {
				t.Errorf("%d bytes are unpacked of %d, and at most %d may be", a.unpacked, size, most)
			}
			if v := archiveExpansion(a); v.outcome != analysis.Finding || v.severity != analysis.High {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestBudget: the limit on unpacking grows with the file's size, within bounds.
func TestBudget(t *testing.T) {
	for size, want := range map[int64]int64{
		0: ratioFrom, 497: ratioFrom, ratioFrom / highRatio: ratioFrom, 1 << 20: highRatio << 20, 50 << 20: maxUnpacked,
		1 << 62: maxUnpacked,
	} {
		if got := unpackedBudget(size, ratioFrom, maxUnpacked); got/highRatio != want/highRatio {
			t.Errorf("%d bytes: %d, not %d", size, got, want)
		}
	}
}

// TestWorkOfTables: the tables of a small Office file and the streams of a small PDF are limited in the same way.
func TestWorkOfTables(t *testing.T) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for _, name := range []string{"[Content_Types].xml", "_rels/.rels"} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		text := `<Types><Override ContentType="` +
			officeTypes["application/vnd.openxmlformats-officedocument.wordprocessingml.document"] + `"/>`
		if _, err := w.Write(append([]byte(text), bytes.Repeat([]byte(" "), partsFrom*3/4)...)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "</Types>"); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := newSubject(Input{Content: bytes.NewReader(packed.Bytes()), Size: int64(packed.Len())})
	if f := s.zip(); !errors.Is(f.tables, errLimit) || f.office == "" {
		t.Errorf("tables of %d bytes in a file of %d: %v", partsFrom*3/2, packed.Len(), f.tables)
	}
	if small, large := pdfLimits(1000).MaxDecodeBytes, pdfLimits(10<<20).MaxDecodeBytes; small != 1<<20 ||
		large != 32<<20 {
		t.Errorf("streams of a PDF: %d and %d", small, large)
	}
}

// TestManyTrailers: each byte of a PDF is examined once, however many trailers begin in the file.
func TestManyTrailers(t *testing.T) {
	content := append([]byte("%PDF-1.7\n"), bytes.Repeat([]byte("trailer<<"), 100_000)...)
	s := newSubject(Input{Content: bytes.NewReader(content), Size: int64(len(content))})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := new(pdfFile).search(s); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d bytes were used for %d", used, len(content))
	}
}
