package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// earlierNames maps programs and maps to the names that they had before every
// name began with fl_. The others lacked the prefix only.
var earlierNames = map[string]string{
	bpf.FairleadMapFlMappings:   "leads",
	bpf.FairleadMapFlIcmpRate:   "news_paid",
	bpf.FairleadMapFlNextHops:   "hops",
	bpf.FairleadMapFlWlDialled:  "own_dialled",
	bpf.FairleadMapFlXdpLinks:   "fast_links",
	bpf.FairleadMapFlXdpPackets: "fast_packets",

	bpf.FairleadProgFlXdp:         "fast",
	bpf.FairleadProgFlLocalEgress: "homeward",
	bpf.FairleadProgFlGetpeer4:    "getpeername4",
	bpf.FairleadProgFlGetpeer6:    "getpeername6",
	bpf.FairleadProgFlWlBind4:     "own_bind4",
	bpf.FairleadProgFlWlBind6:     "own_bind6",
	bpf.FairleadProgFlWlConnect4:  "own_connect4",
	bpf.FairleadProgFlWlConnect6:  "own_connect6",
	bpf.FairleadProgFlWlGetpeer4:  "own_getpeername4",
	bpf.FairleadProgFlWlGetpeer6:  "own_getpeername6",
	bpf.FairleadProgFlWlGetsock4:  "own_getsockname4",
	bpf.FairleadProgFlWlGetsock6:  "own_getsockname6",
	bpf.FairleadProgFlWlPostbind4: "own_post_bind4",
	bpf.FairleadProgFlWlPostbind6: "own_post_bind6",
	bpf.FairleadProgFlWlRecvmsg4:  "own_recvmsg4",
	bpf.FairleadProgFlWlRecvmsg6:  "own_recvmsg6",
	bpf.FairleadProgFlWlSendmsg4:  "own_sendmsg4",
	bpf.FairleadProgFlWlSendmsg6:  "own_sendmsg6",
}

func earlierName(name string) string {
	if earlier, ok := earlierNames[name]; ok {
		return earlier
	}
	return strings.TrimPrefix(name, "fl_")
}

// renamePins renames pins that an earlier version has left, so that its flows
// and attached programs are adopted. dir is the directory of pins.
func renamePins(dir string, spec *ebpf.CollectionSpec) error {
	maps, programs := map[string]string{}, map[string]string{} // today's names by earlier ones
	for name := range spec.Maps {
		maps[earlierName(name)] = name
	}
	for name := range spec.Programs {
		programs[earlierName(name)] = name
	}
	err := errors.Join(renameIn(filepath.Join(dir, "maps"), maps), renameIn(filepath.Join(dir, "links"), programs))
	if err != nil {
		return fmt.Errorf("rename an earlier version's pins: %w", err)
	}
	return nil
}

// renameIn renames the pins of a directory. A map's pin has its name, a link's
// that of its program, followed by "-" and the place where it is attached.
func renameIn(dir string, names map[string]string) error {
	pins, err := os.ReadDir(dir)
	errs := []error{err}
	for _, pin := range pins {
		earlier, place, _ := strings.Cut(pin.Name(), "-")
		if now := names[earlier]; now != "" && now != earlier {
			if place != "" {
				now += "-" + place
			}
			errs = append(errs, renamePin(filepath.Join(dir, pin.Name()), filepath.Join(dir, now)))
		}
	}
	return errors.Join(errs...)
}

// renamePin renames a pin. If the new name already exists, the earlier pin is useless
// and renamePin removes it.
func renamePin(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return os.Remove(from)
	}
	return os.Rename(from, to)
}
