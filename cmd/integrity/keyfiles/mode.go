package keyfiles

import (
	"io/fs"

	"integrityledger/cmd/integrity/internal/system"
)

// Exposed reports whether users other than the owner of a secret's file and the members of this process's groups may
// read it, or others may replace its content. A group that the process belongs to may read it: Kubernetes gives the
// files of a Secret the mode 0440 and the group fsGroup.
func Exposed(info fs.FileInfo) bool {
	const group, others = 0o040, 0o037 // 0o037: the group may write or execute it, or others may do anything
	switch mode := info.Mode().Perm(); {
	case mode&others != 0:
		return true
	case mode&group == 0:
		return false
	}
	return !system.GroupIsOurs(info)
}
