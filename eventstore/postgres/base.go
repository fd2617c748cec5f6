package postgres

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"integrityledger/domain/say"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/klauspost/compress/zstd"
)

const (
	// baseFile is the data directory as PostgreSQL's tar archive, compressed with Zstandard.
	baseFile = "base.tar.zst"
	// manifestFile is PostgreSQL's list of the files in baseFile, with their sizes and SHA-256.
	manifestFile = "backup_manifest"
	// maxWindow bounds the memory that a frame may ask for. Our encoder uses a quarter of it.
	maxWindow = 32 << 20
)

// receiveBase asks the server for a base backup and writes baseFile and manifestFile, synced, to dir. It sends
// BASE_BACKUP itself, because pg_basebackup can compress only with gzip everywhere, and waits without a limit for an
// archive that fails (https://www.postgresql.org/docs/current/protocol-replication.html).
func receiveBase(ctx context.Context, url, dir string) (err error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return say.Errorf("backup: %w", err)
	}
	cfg.RuntimeParams["replication"] = "true"
	// A list of replicas shows this name, which belongs to no replica.
	cfg.RuntimeParams["application_name"] = "pg_basebackup"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return say.Errorf("backup: connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	base, err := createFile(filepath.Join(dir, baseFile))
	if err != nil {
		return err
	}
	defer base.Close()
	manifest, err := createFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return err
	}
	defer manifest.Close()
	// One processor compresses faster than most disks read; the others belong to the service.
	packed, err := zstd.NewWriter(base, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return say.Errorf("backup: %w", err)
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: "BASE_BACKUP (LABEL 'integrity', CHECKPOINT 'fast', WAIT false, " +
		"MANIFEST 'yes', MANIFEST_CHECKSUMS 'SHA256')"})
	if err := conn.Frontend().Flush(); err != nil {
		return say.Errorf("backup: %w", err)
	}
	if err := receive(ctx, conn, packed, manifest); err != nil {
		return say.Errorf("backup: %w", err)
	}
	if err := errors.Join(packed.Close(), base.Sync(), manifest.Sync()); err != nil {
		return say.Errorf("backup: %w", err)
	}
	return nil
}

// receive writes the answer to BASE_BACKUP: the archive of the data directory to base, and the manifest.
func receive(ctx context.Context, conn *pgconn.PgConn, base, manifest io.Writer) error {
	to := io.Discard
	for {
		received, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch m := received.(type) {
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return nil
		case *pgproto3.CopyData:
			kind, content := m.Data[:min(1, len(m.Data))], m.Data[min(1, len(m.Data)):]
			switch string(kind) {
			case "n": // a new archive: its name, and the path of its tablespace
				name, path, _ := bytes.Cut(content, []byte{0})
				if string(name) != "base.tar" {
					return say.Errorf("PostgreSQL sent %s of a tablespace in %s", name, bytes.TrimRight(path, "\x00"))
				}
				to = base
			case "m":
				to = manifest
			case "d":
				if _, err := to.Write(content); err != nil {
					return err
				}
			case "p": // progress, if it is asked for
			default:
				return say.Errorf("PostgreSQL sent a message of the unknown kind %q", kind)
			}
		}
	}
}

// createFile creates a file that only this process's user can read.
func createFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, say.Errorf("backup: %w", err)
	}
	return f, nil
}

// listed is what the manifest says about a file.
type listed struct {
	Path string
	// Encoded is the path in hexadecimal, if it is not UTF-8.
	Encoded   string `json:"Encoded-Path"`
	Size      int64
	Algorithm string `json:"Checksum-Algorithm"`
	Checksum  string
}

// readManifest returns the files of a backup by path, and the sum of their sizes.
func readManifest(dir string) (files map[string]listed, size int64, err error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, 0, err
	}
	var m struct {
		Files    []listed
		Checksum string `json:"Manifest-Checksum"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, 0, say.Errorf("%s: %w", manifestFile, err)
	}
	// The checksum covers all lines before its own.
	sum := sha256.Sum256(text[:bytes.LastIndex(text, []byte("\n\"Manifest-Checksum\""))+1])
	if m.Checksum != hex.EncodeToString(sum[:]) {
		return nil, 0, say.Errorf("%s does not have its own checksum", manifestFile)
	}
	files = map[string]listed{}
	for _, f := range m.Files {
		if f.Encoded != "" {
			path, err := hex.DecodeString(f.Encoded)
			if err != nil {
				return nil, 0, say.Errorf("%s: %w", manifestFile, err)
			}
			f.Path = string(path)
		}
		if f.Algorithm != "SHA256" {
			return nil, 0, say.Errorf("%s has no SHA-256 of %s", manifestFile, f.Path)
		}
		files[f.Path] = f
		size += f.Size
	}
	return files, size, nil
}

// readBase reads the backup in dir, compares every file with the manifest, and returns backup_label. It passes each
// directory to mkdir and writes each file to the one that create returns. If the backup is damaged, it says so; other
// errors are those of mkdir, create and the files.
func readBase(
	ctx context.Context, dir string, mkdir func(name string) error, create func(name string) (io.WriteCloser, error),
) (label bytes.Buffer, err error) {
	damaged := func(err error) error {
		return say.Errorf("the backup %s is damaged: %w", strings.TrimSuffix(filepath.Base(dir), unfinished), err)
	}
	files, _, err := readManifest(dir)
	if err != nil {
		return label, damaged(err)
	}
	base, err := os.Open(filepath.Join(dir, baseFile))
	if err != nil {
		return label, damaged(err)
	}
	defer base.Close()
	plain, err := zstd.NewReader(base, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return label, damaged(err)
	}
	defer plain.Close()
	archive := tar.NewReader(plain)
	for {
		if err := ctx.Err(); err != nil {
			return label, err
		}
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return label, damaged(err)
		}
		name := filepath.Clean(entry.Name)
		f, known := files[name]
		switch {
		case !filepath.IsLocal(entry.Name):
			return label, damaged(say.Errorf("%s is outside of the data directory", entry.Name))
		case entry.Typeflag == tar.TypeDir:
			if err := mkdir(name); err != nil {
				return label, err
			}
			continue
		case entry.Typeflag != tar.TypeReg:
			return label, damaged(say.Errorf("%s is neither a file nor a directory", entry.Name))
		case !known || f.Size != entry.Size:
			return label, damaged(say.Errorf("%s is not in the manifest with %d bytes", entry.Name, entry.Size))
		}
		delete(files, name)
		file, err := create(name)
		if err != nil {
			return label, err
		}
		hash := sha256.New()
		to := io.MultiWriter(file, hash)
		if name == backupLabel {
			to = io.MultiWriter(to, &label)
		}
		unread, err := pour(to, archive)
		switch err := errors.Join(err, file.Close()); {
		case unread != nil:
			return label, damaged(unread)
		case err != nil:
			return label, err
		case hex.EncodeToString(hash.Sum(nil)) != f.Checksum:
			return label, damaged(say.Errorf("%s does not have the SHA-256 in the manifest", name))
		}
	}
	for name := range files {
		return label, damaged(say.Errorf("%s is missing", name))
	}
	// What follows the last file is still protected by the checksum of the compressed frame.
	if unread, _ := pour(io.Discard, plain); unread != nil {
		return label, damaged(unread)
	}
	return label, nil
}

// verifyBase reads the backup in dir without unpacking it.
func verifyBase(ctx context.Context, dir string) (label bytes.Buffer, err error) {
	return readBase(ctx, dir,
		func(string) error { return nil },
		func(string) (io.WriteCloser, error) { return discard{io.Discard}, nil })
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// unpackBase unpacks the backup in dir to the new directory to.
func unpackBase(ctx context.Context, dir, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = readBase(ctx, dir,
		func(name string) error { return root.MkdirAll(name, 0o700) },
		func(name string) (io.WriteCloser, error) {
			return root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		})
	return err
}

// pour copies from to to. It keeps an error of reading apart, which means damage, from one of writing.
func pour(to io.Writer, from io.Reader) (unread, err error) {
	source := &source{Reader: from}
	if _, err = io.Copy(to, source); source.err != nil {
		return source.err, nil
	}
	return nil, err
}

type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
