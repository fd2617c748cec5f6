package postgres

import (
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
)

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
		name, err := systemName(uid)
		if err != nil && uid != os.Geteuid() {
			continue
		}
		if err != nil {
			return fmt.Errorf("this process runs as a user without a name (%w), and PostgreSQL lets in by name: give user %d a line in /etc/passwd, or run this as another user", err, uid)
		}
		fmt.Fprintf(&users, "%s %s %s\n", peerMap, quoted(name), quoted(superuser))
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
	if err == nil {
		_, err = f.WriteString(text)
		if err == nil && a.other {
			err = f.Chown(a.uid, a.gid)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
				err = errors.Join(err, removeErr)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("say who may connect: %w", err)
	}
	return nil
}
