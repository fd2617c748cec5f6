package blobs

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"integrityledger/domain/say"
)

// files is a bucket in a directory: each name is the path of a file.
type files struct {
	dir  string
	mode fs.FileMode // of new directories, before the umask
	sync func(path string) error
}

// openFiles opens file:///directory, or file://./directory for a relative path, with these parameters:
//
//   - create_dir: if not empty, a missing directory is created;
//   - dir_file_mode: the mode of new directories, 0777 by default.
func openFiles(u *url.URL, p *parameters, sync func(path string) error) (*files, error) {
	path := u.Path
	if u.Host == "." {
		path = strings.TrimPrefix(path, "/")
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f := &files{dir, 0o777, sync}
	create := p.text("create_dir") != ""
	if text := p.text("dir_file_mode"); text != "" {
		mode, err := strconv.ParseUint(text, 0, 9)
		if err != nil {
			return nil, say.Errorf("dir_file_mode must be a mode such as 0700, not %q", text)
		}
		f.mode = fs.FileMode(mode)
	}
	p.ignore("no_tmp_dir", "metadata", "base_url", "secret_key_path") // of gocloud.dev, which read these URLs before
	if err := p.finish(); err != nil {
		return nil, err
	}
	if create {
		err = os.MkdirAll(f.dir, f.mode) //nolint:gosec // the operator names it
	}
	if err == nil {
		err = f.check(context.Background())
	}
	return f, err
}

func (f *files) check(context.Context) error {
	info, err := os.Stat(f.dir)
	if err == nil && !info.IsDir() {
		err = say.Errorf("%s is not a directory", f.dir)
	}
	return err
}

// put writes a file beside the name, flushes it and renames it. Then it flushes the directories that lead to the name:
// the organization's and the store's may be as new as the file.
func (f *files) put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), f.mode); err != nil {
		return err
	}
	// the umask limits who can read it
	temporary, err := os.OpenFile(path+"."+rand.Text(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // a no-op after the rename
	n, err := io.Copy(temporary, io.NewSectionReader(content, 0, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, temporary.Close(), ctx.Err()); err == nil {
		err = f.sync(temporary.Name())
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return err
	}
	err = errors.Join(f.sync(filepath.Dir(path)), f.sync(f.dir))
	// The store's parent may be a directory that we must not read.
	if above := f.sync(filepath.Dir(f.dir)); !errors.Is(above, fs.ErrPermission) {
		err = errors.Join(err, above)
	}
	return err
}

// remove flushes the directory, so that a power failure cannot bring back bytes that the log calls erased.
func (f *files) remove(_ context.Context, name string) error {
	dir, base := filepath.Split(filepath.Join(f.dir, name))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	removed := false
	for _, entry := range entries {
		if entry.Name() != base && !strings.HasPrefix(entry.Name(), base+".") {
			continue
		}
		if failed := os.Remove(filepath.Join(dir, entry.Name())); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		removed = true
	}
	if removed {
		err = errors.Join(err, f.sync(filepath.Clean(dir)))
	}
	return err
}
