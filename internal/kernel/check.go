package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"fairlead/internal/plan"
)

// Settings says which sysctls of the host Check looks at.
func (w *Watcher) Settings(wanted []plan.Sysctl) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settings == nil {
		return nil // it is closed
	}
	left := w.settings
	w.settings = make(map[string]setting, len(wanted))
	w.linkSettings = nil
	var errs []error
	for _, s := range wanted {
		if link, at, ok := linkSetting(s); ok {
			w.linkSettings = append(w.linkSettings, linkSpec{s.Name, s.Value, link, at})
			continue
		}
		if known, ok := left[s.Name]; ok && known.want == s.Value {
			w.settings[s.Name] = known
			delete(left, s.Name)
			continue
		}
		err := w.host.inSysctlNetns(s, func(path string) error {
			f, err := os.Open(path)
			if err == nil {
				w.settings[s.Name] = setting{f, s.Value}
			}
			return err
		})
		if err != nil && !absent(err) && !errors.Is(err, ErrNoSetting) {
			errs = append(errs, fmt.Errorf("watch %s: %w", s.Name, err))
		}
	}
	for _, s := range left {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

// setting is a sysctl that is looked at: its file shows the namespace that it
// was opened in.
type setting struct {
	file *os.File
	want string
}

// linkSpec is a setting of a link that the link's message shows.
type linkSpec struct {
	name, value, link string
	at                confAt
}

// linksEvery is how often the settings of links are read: all links are listed.
const linksEvery = 3 * time.Second

// checkLinks reports whether the links have their settings, if it is time to
// read them. A link that is gone is reported by the kernel.
func (w *Watcher) checkLinks() bool {
	if len(w.linkSettings) == 0 || time.Since(w.listed) < linksEvery {
		return true
	}
	w.listed = time.Now()
	confs, err := w.host.readConfs("")
	if err != nil {
		return true // what cannot be read now is read next time
	}
	good := true
	for _, s := range w.linkSettings {
		if !confs[s.link].has(s.at, s.value) {
			put(&w.seen.settings, s.name, true)
			good = false
		}
	}
	return good
}

// Check looks at what the kernel tells nobody of: sysctls of the host (see
// Settings), eBPF programs and their pins, the table that they share, and IPVS. What
// is not as it should be is among what Take returns next; Check reports whether
// there is any. It must not be called while something is being applied.
func (w *Watcher) Check() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := false
	var buf [64]byte
	for name, s := range w.settings {
		// The file of a link that has gone is no concern of this.
		if n, _ := s.file.ReadAt(buf[:], 0); n > 0 && string(bytes.TrimSpace(buf[:n])) != s.want {
			put(&w.seen.settings, name, true)
			bad = true
		}
	}
	attached, intact := w.host.checkBPF()
	w.seen.bpf, w.seen.mappings = w.seen.bpf || !attached, w.seen.mappings || !intact
	bad = !w.checkLinks() || bad
	balanced := w.checkIPVS()
	w.seen.ipvs = w.seen.ipvs || !balanced
	filtered := w.checkLegacy()
	w.seen.firewall = w.seen.firewall || !filtered
	return bad || !attached || !intact || !balanced || !filtered
}

// balancedEvery is how often IPVS is looked at: it is listed service by service.
const balancedEvery = 3 * time.Second

// checkIPVS reports whether IPVS holds what we have left in it, if it is time to
// look.
func (w *Watcher) checkIPVS() bool {
	if time.Since(w.balanced) < balancedEvery {
		return true
	}
	w.balanced = time.Now()
	differing, err := w.host.ipvsDiffers()
	return !differing && err == nil // what cannot be read is looked at by healing, which says why
}

// checkBPF reports whether the programs are attached and pinned, and whether
// their table is as we have left it.
func (h *Host) checkBPF() (attached, intact bool) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p := h.ebpfState
	if p == nil {
		return true, true
	}
	return p.Attached() && p.Pinned(), len(p.Table().Hurt()) == 0 && p.Balancer().AllIntact()
}

// RenewAddresses tells the eBPF programs the host's own addresses.
func (h *Host) RenewAddresses() error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	if h.ebpfState == nil {
		return nil
	}
	local, err := h.LocalAddrs()
	if err != nil {
		return err
	}
	return h.ebpfState.SetAddresses(local)
}

// ObservePart returns what the kernel holds of some objects of a plan. With any
// of an nft table comes all that is in it.
func (h *Host) ObservePart(part plan.Plan) (plan.Plan, error) {
	h.Release() // what was seen before may be another by now
	defer h.Release()
	h.bpf.Lock()
	defer h.bpf.Unlock()
	var have plan.Plan
	mappings, table, services := map[string]bool{}, false, false
	for _, o := range part {
		switch o.(type) {
		case plan.Table, plan.NFTMapping, plan.Member, plan.Proxied:
			table = true
			continue
		case plan.ServiceTable, plan.NFTService:
			services = true
			continue
		case plan.EBPFMapping, plan.Grant, plan.EBPFService:
			mappings[o.Key()] = true
			continue
		}
		found, err := h.read(o)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.Key(), err)
		}
		if found != nil {
			have = append(have, found)
		}
	}
	if len(mappings) > 0 {
		found, err := h.readMappings(mappings)
		if err != nil {
			return nil, fmt.Errorf("read the eBPF table: %w", err)
		}
		have = append(have, found...)
	}
	if services {
		found, err := h.readServices(part)
		if err != nil {
			return nil, err
		}
		have = append(have, found...)
	}
	if !table {
		return have, nil
	}
	rules, err := h.readTable()
	return append(have, rules...), err
}
