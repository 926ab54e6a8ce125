package link

import (
	"errors"
	"fmt"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// AssignID assigns an id of the host's namespace to the namespace at path (`ip netns
// set-id`), unless it has one. The kernel reports changes in a namespace, and its
// end, only with such an id. The error wraps os.ErrNotExist if there is no namespace
// at path. AssignID is safe for concurrent use.
func (h *Handle) AssignID(path string) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	host, err := h.At("")
	if err != nil {
		return err
	}
	const chosenByKernel = -1
	err = host.SetNetNsIdByFd(int(ns.File().Fd()), chosenByKernel)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("assign an id to the namespace: %w", err)
	}
	return nil
}
