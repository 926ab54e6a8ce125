package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"fairlead/internal/cluster/vip"
	"fairlead/internal/jsonsum"
)

// memories is the content of the file for the next process: what it must know of the addresses
// that this node holds. The file need not outlive the host's boot, as the deadlines do not.
type memories struct {
	// Node is the id of the node.
	Node      string                     `json:"node"`
	Addresses map[netip.Addr]*vip.Memory `json:"addresses"`
}

// recall returns what an earlier process has stored.
func (r *Runner) recall() map[netip.Addr]*vip.Memory {
	text, err := os.ReadFile(r.cfg.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all memories
	if err == nil {
		_, err = jsonsum.Check(text)
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w: the file is not used", r.cfg.Memory, err)
	}
	if err != nil || all.Node != r.self.Node {
		r.warn(err)
		return nil
	}
	return all.Addresses
}

// remember stores what the next process must know, if that has changed. It is called before the
// actions of a machine are carried out.
func (r *Runner) remember(a *address) {
	memory := a.machine.Memory()
	if memory.Same(a.memory) {
		return
	}
	a.memory = memory
	all := memories{r.self.Node, map[netip.Addr]*vip.Memory{}}
	for _, a := range r.known {
		if a.memory != nil {
			all.Addresses[a.addr] = a.memory
		}
	}
	if err := r.write(all); err != nil {
		r.warn(err)
		r.forget() // an old memory is worse than none
	}
}

func (r *Runner) write(all memories) error {
	if len(all.Addresses) == 0 {
		r.forget()
		return nil
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(r.cfg.Memory+".new", jsonsum.Add(text), 0o600)
	}
	if err == nil {
		err = os.Rename(r.cfg.Memory+".new", r.cfg.Memory)
	}
	if err != nil {
		return fmt.Errorf("store the held addresses: %w", err)
	}
	return nil
}

// forget deletes the file.
func (r *Runner) forget() {
	if err := os.Remove(r.cfg.Memory); !errors.Is(err, fs.ErrNotExist) {
		r.warn(err)
	}
}
