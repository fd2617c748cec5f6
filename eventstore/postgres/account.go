package postgres

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"integrityledger/domain/say"
)

// account is the user that PostgreSQL runs as. PostgreSQL refuses to run as root.
type account struct {
	uid, gid int
	// other is set if it differs from this process's user. Only root can run a program as another user.
	other bool
}

// accountFor returns the owner of the existing data directory. For a new one, root picks a user that no other program
// runs as (unprivileged): any process of the same user could read and change the files.
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
		return unprivileged(l.dir)
	case err != nil:
		return account{}, err
	case self.uid == 0 && uid == 0:
		return account{}, say.Errorf(
			"%s belongs to root, and PostgreSQL refuses to run as root: give it to the user who should run it (chown -R "+
				"postgres %s)",
			l.data, l.data,
		)
	case self.uid == 0:
		return account{uid: uid, gid: gid, other: true}, nil
	case self.uid != uid:
		return account{}, say.Errorf("%s belongs to user %s: run this as that user or as root", l.data, userName(uid))
	default:
		return self, nil
	}
}

// firstUnused and lastUnused limit a range of user numbers that are not assigned: useradd ends below it, and systemd's
// dynamic users begin above it.
const firstUnused, lastUnused = 60706, 61183

// unprivileged returns the user integrity, or postgres, or otherwise a number without a name. The number is derived
// from the data directory, so that two ledgers on one machine rarely share it. It never returns the user named nobody,
// as which every service without a dedicated user runs.
func unprivileged(dir string) (account, error) {
	for _, name := range []string{"integrity", "postgres"} {
		if a, ok := named(name); ok {
			return a, nil
		}
	}
	return nameless(dir)
}

// nameless returns a user number that has no name and no process.
func nameless(dir string) (account, error) {
	inUse := usersOfProcesses()
	const numbers = lastUnused - firstUnused + 1
	sum := sha256.Sum256([]byte(dir))
	start := int(binary.BigEndian.Uint32(sum[:]) % numbers)
	for i := range numbers {
		uid := firstUnused + (start+i)%numbers
		if _, err := systemName(uid); err != nil && !inUse[uid] {
			return account{uid: uid, gid: uid, other: true}, nil
		}
	}
	return account{}, say.New(
		"PostgreSQL refuses to run as root, and there is no user for it: create one (useradd --system integrity), or run " +
			"this as an ordinary user",
	)
}

// named returns the account of a system user. ok is false if the user does not exist or is root under another name.
func named(name string) (a account, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, false
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return account{uid: uid, gid: gid, other: true}, uidErr == nil && gidErr == nil && uid != 0
}

// borrowed returns an account with a name, which initdb requires. It is used only while initdb runs.
func borrowed() (account, error) {
	inUse := usersOfProcesses()
	for _, name := range []string{"bin", "daemon", "nobody"} {
		if a, ok := named(name); ok && !inUse[a.uid] {
			return a, nil
		}
	}
	return account{}, say.New(
		"initdb requires a user with a name: create one (useradd --system integrity) and give it the data directory (chown " +
			"integrity), or run this as an ordinary user",
	)
}

// usersOfProcesses returns the users of all running processes.
func usersOfProcesses() map[int]bool {
	processes, _ := filepath.Glob("/proc/[0-9]*") // fails only for a malformed pattern
	inUse := map[int]bool{}
	for _, process := range processes {
		if uid, _, err := ownerOf(process); err == nil { // otherwise it has ended
			inUse[uid] = true
		}
	}
	return inUse
}

// sharedUser returns the name of the account if other programs also run as it, otherwise an empty string.
func (a account) sharedUser() string {
	if nobody, ok := named("nobody"); ok && nobody.uid == a.uid {
		return "nobody"
	}
	return ""
}

func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, say.Errorf("owner: %w", err)
	}
	stat := info.Sys().(*syscall.Stat_t) // always, on Linux
	return int(stat.Uid), int(stat.Gid), nil
}

func userName(uid int) string {
	name, _ := systemName(uid)
	return cmp.Or(name, strconv.Itoa(uid))
}

// credential returns nil if the child keeps this process's user.
func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// give makes the account own path. It never follows a link.
func (a account) give(path string) error {
	if !a.other {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return say.Errorf("change the owner to user %s: %w", userName(a.uid), err)
	}
	return nil
}

// reach makes sure that the account can enter dir. It adds search permission (not read permission) to dir itself. Its
// parents are left to the operator.
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
			return say.Errorf("PostgreSQL runs as user %s, who may not pass through %s to reach %s: choose a directory that "+
				"user can reach (INTEGRITY_DATA_DIR, for example /var/lib/integrity)",
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
		return say.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o111); err != nil {
		return say.Errorf("let user %s pass: %w", userName(a.uid), err)
	}
	return nil
}

func (a account) canSearch(dir string) (bool, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return false, say.Errorf("data directory: %w", err)
	}
	uid, gid, err := ownerOf(dir)
	if err != nil {
		return false, err
	}
	mode := info.Mode().Perm()
	switch {
	case uid == a.uid:
		mode >>= 6
	case gid == a.gid:
		mode >>= 3
	}
	return mode&1 != 0, nil
}

// privateDir creates path as a directory that only the account can enter. An existing path must already be one: in a
// world-writable temp dir, another user could have put something else in its place.
func (a account) privateDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return a.give(path)
	}
	if !errors.Is(err, fs.ErrExist) {
		return say.Errorf("socket directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return say.Errorf("socket directory: %w", err)
	}
	uid, _, err := ownerOf(path)
	if err != nil {
		return err
	}
	if uid == 0 && a.other && info.IsDir() {
		// An earlier process died between creating it and changing its owner.
		if err := a.give(path); err != nil {
			return err
		}
		uid = a.uid
	}
	if !info.IsDir() || uid != a.uid || info.Mode().Perm() != 0o700 {
		return say.Errorf("%s is not a directory of mode 0700 that belongs to user %s: remove it", path, userName(a.uid))
	}
	return nil
}

// peerMap is the name of our map in pg_ident.conf.
const peerMap = "integrity"

// restrict lets only root and this process's user connect through the socket, not even other processes of the account.
// It rewrites both files before every start, so it also closes a data directory, even a restored one, from an older
// program that trusted the account.
func restrict(l layout, a account, disposable bool) error {
	hba := filepath.Join(l.data, "pg_hba.conf")
	if disposable { // tests connect as other roles and users
		return replaceFile(hba, "local all all trust\nlocal replication all trust\n", a)
	}
	var users strings.Builder
	for _, uid := range slices.Compact([]int{0, os.Geteuid()}) {
		if name, err := systemName(uid); err == nil {
			fmt.Fprintf(&users, "%s %s %s\n", peerMap, quoted(name), quoted(superuser))
		} else if uid == os.Geteuid() {
			return say.Errorf(
				"this process runs as a user without a name (%w), but PostgreSQL admits users by name: give user %d a line in "+
					"/etc/passwd, or run this as another user",
				err, uid,
			)
		}
	}
	const note = "# Written at every start of the ledger's PostgreSQL.\n"
	rules := note
	for _, databases := range []string{"all", "replication"} {
		rules += fmt.Sprintf("local %s %s peer map=%s\n", databases, quoted(superuser), peerMap)
	}
	return errors.Join(
		replaceFile(filepath.Join(l.data, "pg_ident.conf"), note+users.String(), a),
		replaceFile(hba, rules, a))
}

func quoted(word string) string { return `"` + strings.ReplaceAll(word, `"`, `""`) + `"` }

// systemName returns the name that PostgreSQL finds for a user. Without the C library, os/user only reads /etc/passwd,
// so getent is asked as well.
func systemName(uid int) (string, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err == nil {
		return u.Username, nil
	}
	line, getentErr := exec.Command("getent", "passwd", strconv.Itoa(uid)).Output() //nolint:gosec,noctx // a number; answers at once
	if name, _, ok := strings.Cut(string(line), ":"); getentErr == nil && ok && name != "" {
		return name, nil
	}
	return "", err
}

// replaceFile replaces a file of the account by a rename, because the account could have created a link of that name.
func replaceFile(path, text string, a account) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600, never an existing file
	if err != nil {
		return say.Errorf("say who may connect: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil && a.other {
		err = f.Chown(a.uid, a.gid)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return say.Errorf("say who may connect: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
