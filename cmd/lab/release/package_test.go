package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installation installs the package $1 in a private copy of this machine's root directory, made in $2, with a network
// of its own. It then serves as the package says, and removes the package. Nothing else on the machine changes.
const installation = `
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/root"
cp "$1" "$2/root/package.deb"
mount -t proc proc "$2/root/proc"
mount --rbind /dev "$2/root/dev"
mount -t tmpfs tmpfs "$2/root/run"
mount -t tmpfs -o mode=1777 tmpfs "$2/root/tmp"
ip link set lo up
exec chroot "$2/root" bash -euo pipefail -c '
	cd /
	export LC_ALL=C
	! getent passwd integrity
	dpkg -i /package.deb
	stat -c "%U %G %a %n" /usr/bin/integrity /usr/lib/systemd/system/integrity-ledger.service /etc/integrity \
		/etc/integrity/environment /var/lib/integrity /usr/share/doc/integrity-ledger/copyright
	getent passwd integrity
	command -v systemd-analyze >/dev/null && systemd-analyze verify integrity-ledger.service && echo verified
	set -a; . /etc/integrity/environment; set +a
	setpriv --reuid=integrity --regid=integrity --init-groups /usr/bin/integrity serve 2>/var/lib/integrity/log &
	service=$!
	until curl -sf -o /dev/null http://127.0.0.1:8080/readyz; do
		kill -0 $service || { cat /var/lib/integrity/log; exit 1; }
		sleep 0.1
	done
	echo ready
	dpkg -i /package.deb
	curl -sf -o /dev/null http://127.0.0.1:8080/readyz && echo replaced
	kill -TERM $service
	wait $service && echo stopped
	dpkg -r integrity-ledger
	ls /usr/bin/integrity 2>&1 || true
	stat -c "%U %n" /etc/integrity/environment /var/lib/integrity/signing-key.pem
	dpkg --purge integrity-ledger
	stat -c "%U %n" /etc/integrity/environment 2>&1 || stat -c "kept %n" /var/lib/integrity/signing-key.pem
'`

// TestPackage installs the Debian package and runs its service with the settings of the package.
func TestPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the program")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make another root directory")
	}
	b := need(t)
	deb := b.files[1].path
	private := t.TempDir()
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
		"--propagation", "private", "bash", "-euo", "pipefail", "-c", installation, "install", deb, private)
	out, err := c.CombinedOutput()
	said := string(out)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, line := range []string{
		"root root 755 /usr/bin/integrity", "root root 644 /usr/lib/systemd/system/integrity-ledger.service",
		"root integrity 750 /etc/integrity", "root integrity 640 /etc/integrity/environment",
		"integrity integrity 700 /var/lib/integrity", "root root 644 /usr/share/doc/integrity-ledger/copyright",
		"    systemctl enable --now integrity-ledger", "verified", "ready", "    systemctl restart integrity-ledger", "replaced", "stopped",
		"ls: cannot access '/usr/bin/integrity': No such file or directory",
		"root /etc/integrity/environment", "integrity /var/lib/integrity/signing-key.pem",
		"The records and keys in /var/lib/integrity stay. Nobody can restore them: remove them by hand.",
		"kept /var/lib/integrity/signing-key.pem",
	} {
		if !strings.Contains(said, line+"\n") {
			t.Errorf("%s: it lacks %q: %s", filepath.Base(deb), line, said)
		}
	}
	if !strings.Contains(said, ":/var/lib/integrity:/usr/sbin/nologin\n") {
		t.Errorf("the account: %s", said)
	}
}
