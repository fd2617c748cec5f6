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
)

// account is who PostgreSQL runs as: it refuses to be root.
type account struct {
	uid, gid int
	// other says that it is not who we are, which only root can arrange.
	other bool
}

// accountFor picks the owner of what already exists. For something new root takes a user that other programs do not
// have (unprivileged): a process of the same user can read and change the files, whatever PostgreSQL asks of it.
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
		return account{}, fmt.Errorf(
			"%s belongs to root, and PostgreSQL refuses to run as root: give it to the user who should run it (chown -R "+
				"postgres %s)",
			l.data, l.data,
		)
	case self.uid == 0:
		return account{uid: uid, gid: gid, other: true}, nil
	case self.uid != uid:
		return account{}, fmt.Errorf("%s belongs to user %s: run this as that user or as root", l.data, userName(uid))
	default:
		return self, nil
	}
}

// firstUnused and lastUnused are user numbers that nobody assigns: useradd ends below them, systemd's made-up accounts
// begin above them.
const firstUnused, lastUnused = 60706, 61183

// unprivileged is the user integrity, or postgres, or else a number without a name: which one follows from the data
// directory, so that two ledgers of one machine rarely share it. Never nobody: every service that was given no user of
// its own runs as that.
func unprivileged(dir string) (account, error) {
	for _, name := range []string{"integrity", "postgres"} {
		if a, ok := named(name); ok {
			return a, nil
		}
	}
	return nameless(dir)
}

// nameless is a number that no user has and no process runs as.
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
	return account{}, errors.New(
		"PostgreSQL refuses to run as root, and there is no user for it: make one (useradd --system integrity), or run " +
			"this as an ordinary user",
	)
}

// named is the account of a system user; ok is false where no user has the name, or where it is root by another name.
func named(name string) (a account, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, false
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return account{uid: uid, gid: gid, other: true}, uidErr == nil && gidErr == nil && uid != 0
}

// borrowed is an account with a name, which initdb demands of its user, for the moment that initdb takes.
func borrowed() (account, error) {
	inUse := usersOfProcesses()
	for _, name := range []string{"bin", "daemon", "nobody"} {
		if a, ok := named(name); ok && !inUse[a.uid] {
			return a, nil
		}
	}
	return account{}, errors.New(
		"initdb demands a user with a name: make one (useradd --system integrity) and give it the data directory (chown " +
			"integrity), or run this as an ordinary user",
	)
}

// usersOfProcesses are those that a process runs as at the moment.
func usersOfProcesses() map[int]bool {
	processes, _ := filepath.Glob("/proc/[0-9]*") // fails for a malformed pattern alone
	inUse := map[int]bool{}
	for _, process := range processes {
		if uid, _, err := ownerOf(process); err == nil { // else it has ended
			inUse[uid] = true
		}
	}
	return inUse
}

// sharedUser is the name of the account where it is one that other programs run as too, empty where it is not.
func (a account) sharedUser() string {
	if nobody, ok := named("nobody"); ok && nobody.uid == a.uid {
		return "nobody"
	}
	return ""
}

func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("owner: %w", err)
	}
	stat := info.Sys().(*syscall.Stat_t) // always, on Linux
	return int(stat.Uid), int(stat.Gid), nil
}

func userName(uid int) string {
	name, _ := systemName(uid)
	return cmp.Or(name, strconv.Itoa(uid))
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
			return fmt.Errorf("PostgreSQL runs as user %s, who may not pass through %s to reach %s: name a directory that "+
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
		mode >>= 6
	case gid == a.gid:
		mode >>= 3
	}
	return mode&1 != 0, nil
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

// peerMap is the name of our map in pg_ident.conf.
const peerMap = "integrity"

// restrict lets root and the user that this process runs as connect through the socket, and nobody else: not even other
// processes of the account. It writes both files anew before every start, so a data directory of a program that trusted
// the account, also one that was restored, is closed too.
func restrict(l layout, a account, disposable bool) error {
	hba := filepath.Join(l.data, "pg_hba.conf")
	if disposable { // tests take on other roles and users
		return replaceFile(hba, "local all all trust\nlocal replication all trust\n", a)
	}
	var users strings.Builder
	for _, uid := range slices.Compact([]int{0, os.Geteuid()}) {
		if name, err := systemName(uid); err == nil {
			fmt.Fprintf(&users, "%s %s %s\n", peerMap, quoted(name), quoted(superuser))
		} else if uid == os.Geteuid() {
			return fmt.Errorf(
				"this process runs as a user without a name (%w), and PostgreSQL lets in by name: give user %d a line in "+
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

// systemName is the name that PostgreSQL finds for a user. What this program finds without the C library is only what
// stands in /etc/passwd.
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

// replaceFile puts a file of the account's in place by a rename, for the account could have made a link of that name.
func replaceFile(path, text string, a account) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600, never an existing file
	if err != nil {
		return fmt.Errorf("say who may connect: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil && a.other {
		err = f.Chown(a.uid, a.gid)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("say who may connect: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
