package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who PostgreSQL runs as: it refuses to be root.
type account struct {
	uid, gid int
	// other says that it is not who we are, which only root can arrange.
	other bool
}

// accountFor picks the owner of what already exists; for something new, root takes "postgres", then "nobody".
func accountFor(l layout) (account, error) {
	self := account{uid: os.Geteuid(), gid: os.Getegid()}
	uid, gid, err := ownerOf(l.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if self.uid != 0 {
			return self, nil
		}
		if uid, gid, err = ownerOf(l.dir); err != nil {
			return account{}, err
		}
		if uid != 0 {
			return account{uid: uid, gid: gid, other: true}, nil
		}
		return unprivileged()
	case err != nil:
		return account{}, err
	case self.uid == 0 && uid == 0:
		return account{}, fmt.Errorf("%s belongs to root, and PostgreSQL refuses to run as root: give it to the user who should run it (chown -R postgres %s)", l.data, l.data)
	case self.uid == 0:
		return account{uid: uid, gid: gid, other: true}, nil
	case self.uid != uid:
		return account{}, fmt.Errorf("%s belongs to user %s: run this as that user or as root", l.data, userName(uid))
	default:
		return self, nil
	}
}

func unprivileged() (account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{uid: uid, gid: gid, other: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody: run this as an ordinary user")
}

func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("owner: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("owner of %s: not told by this system", path)
	}
	return int(stat.Uid), int(stat.Gid), nil
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// credential is nil where the child simply stays who we are.
func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// give makes path the account's. It never follows a link.
func (a account) give(path string) error {
	if !a.other {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("hand over to user %s: %w", userName(a.uid), err)
	}
	return nil
}

// reach makes sure that the account can get to dir. Only dir itself is opened up (search permission, not reading), its
// parents are the operator's.
func (a account) reach(dir string) error {
	if !a.other {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		ok, err := a.canSearch(parent)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("PostgreSQL runs as user %s, who may not pass through %s to reach %s: name a directory that user can reach (INTEGRITY_DATA_DIR, for example /var/lib/integrity)",
				userName(a.uid), parent, dir)
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	if ok, err := a.canSearch(dir); err != nil || ok {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o111); err != nil {
		return fmt.Errorf("let user %s pass: %w", userName(a.uid), err)
	}
	return nil
}

func (a account) canSearch(dir string) (bool, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return false, fmt.Errorf("data directory: %w", err)
	}
	uid, gid, err := ownerOf(dir)
	if err != nil {
		return false, err
	}
	mode := info.Mode().Perm()
	switch {
	case uid == a.uid:
		return mode&0o100 != 0, nil
	case gid == a.gid:
		return mode&0o010 != 0, nil
	default:
		return mode&0o001 != 0, nil
	}
}

// privateDir makes path a directory that only the account can enter. One that is already there must be exactly that:
// in a world-writable temp dir anybody could have put something in its place.
func (a account) privateDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return a.give(path)
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("socket directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	uid, _, err := ownerOf(path)
	if err != nil {
		return err
	}
	if uid == 0 && a.other && info.IsDir() {
		// We died between making it and giving it away.
		if err := a.give(path); err != nil {
			return err
		}
		uid = a.uid
	}
	if !info.IsDir() || uid != a.uid || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s is not a directory of mode 0700 that belongs to user %s: remove it", path, userName(a.uid))
	}
	return nil
}
