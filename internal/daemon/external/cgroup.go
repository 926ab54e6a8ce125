package external

import (
	"fmt"
	"strconv"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// CgroupID identifies a cgroup. A later cgroup at the same path has another ID.
func CgroupID(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("stat cgroup %s: %w", path, err)
	}
	return "cgroup:" + strconv.FormatUint(st.Ino, 10), nil
}

// CgroupGone reports whether the attachment is a workload whose cgroup no longer
// exists.
func CgroupGone(a model.Attachment) bool {
	if a.Cgroup == "" {
		return false
	}
	is, err := CgroupID(a.Cgroup)
	return err != nil || is != a.Namespace
}
