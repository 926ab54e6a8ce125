package watch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// Settings sets which sysctls of the host Check reads. It replaces the earlier
// list.
func (w *Watcher) Settings(wanted []plan.Sysctl) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settings == nil {
		return nil // the watcher is closed
	}
	left := w.settings
	w.settings = make(map[string]setting, len(wanted))
	w.linkSettings = nil
	var errs []error
	for _, s := range wanted {
		if link, at, ok := rtnl.LinkSetting(s); ok {
			w.linkSettings = append(w.linkSettings, linkSpec{s, link, at})
			continue
		}
		if known, ok := left[s.Name]; ok && known.Sysctl == s {
			w.settings[s.Name] = known
			delete(left, s.Name)
			continue
		}
		err := w.cfg.Net.InSysctlNetns(s, func(path string) error {
			f, err := os.Open(path)
			if err == nil {
				w.settings[s.Name] = setting{s, f}
			}
			return err
		})
		if err != nil && !nlutil.Absent(err) && !errors.Is(err, rtnl.ErrNoSetting) {
			errs = append(errs, fmt.Errorf("watch %s: %w", s.Name, err))
		}
	}
	for _, s := range left {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

// setting is a sysctl that Check reads. Its file always shows the namespace in
// which it was opened.
type setting struct {
	plan.Sysctl
	file *os.File
}

// linkSpec is the desired value of a link's setting that is part of the link's
// netlink message.
type linkSpec struct {
	plan.Sysctl
	link string
	at   rtnl.ConfAt
}

// linkCheckInterval is the time between two checks of link settings, because each
// one lists all links.
const linkCheckInterval = 3 * time.Second

// checkLinks reports whether the links have the desired settings. It does nothing
// if the last check is less than linkCheckInterval ago. A missing link is not an
// error here: the kernel sends an event for it.
func (w *Watcher) checkLinks() bool {
	if len(w.linkSettings) == 0 || time.Since(w.linksChecked) < linkCheckInterval {
		return true
	}
	w.linksChecked = time.Now()
	confs, err := w.cfg.Net.ReadConfs("")
	if err != nil {
		return true // the next check tries again
	}
	good := true
	for _, s := range w.linkSettings {
		if !confs[s.link].Has(s.at, s.Sysctl) {
			nlutil.Put(&w.seen.settings, s.Name, true)
			good = false
		}
	}
	return good
}

// Check inspects the state for which the kernel sends no events: the host's sysctls
// (see Settings), the eBPF programs, their pins and maps, IPVS, and the filter tables of
// iptables-legacy. The next Take returns what differs. Check reports whether anything
// differs. Changes of unreported rules make RulesChanged receive (see PollRules). Do not
// call it while a plan is being applied.
func (w *Watcher) Check() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := false
	var buf [64]byte
	for name, s := range w.settings {
		// If the link is gone, the read fails; the link's event covers that.
		if n, _ := s.file.ReadAt(buf[:], 0); n > 0 && !s.Allows(string(bytes.TrimSpace(buf[:n]))) {
			nlutil.Put(&w.seen.settings, name, true)
			bad = true
		}
	}
	attached, intact := w.cfg.EBPF()
	w.seen.bpf, w.seen.mappings = w.seen.bpf || !attached, w.seen.mappings || !intact
	bad = !w.checkLinks() || bad
	balanced := w.checkIPVS()
	w.seen.ipvs = w.seen.ipvs || !balanced
	filtered := w.checkLegacy()
	w.seen.firewall = w.seen.firewall || !filtered
	w.checkUnreported()
	return bad || !attached || !intact || !balanced || !filtered
}

// ipvsCheckInterval is the time between two checks of IPVS, because each one lists
// every service.
const ipvsCheckInterval = 3 * time.Second

// checkIPVS reports whether IPVS has what Fairlead has set. It does nothing if the
// last check is less than ipvsCheckInterval ago.
func (w *Watcher) checkIPVS() bool {
	if time.Since(w.ipvsChecked) < ipvsCheckInterval {
		return true
	}
	w.ipvsChecked = time.Now()
	for _, differs := range w.cfg.IPVS {
		// On an error, the repair reads IPVS again and reports why that fails.
		if differing, err := differs(); differing || err != nil {
			return false
		}
	}
	return true
}

// PollRules sets whether Check compares the rules of which the kernel sends no messages.
// Only what bypasses rules needs that: it reads all tables of iptables-legacy.
func (w *Watcher) PollRules(polls bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if polls && !w.polls {
		w.unreported = w.cfg.Unreported()
	}
	w.polls = polls
}

// CheckRules notes a change of unreported rules at once. Call it before the rules are read: rules
// that are back as they were by the next Check have changed, too.
func (w *Watcher) CheckRules() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkUnreported()
}

// checkUnreported notes that unreported rules have changed since the last call.
func (w *Watcher) checkUnreported() {
	if !w.polls {
		return
	}
	if now := w.cfg.Unreported(); now != w.unreported {
		w.unreported = now
		w.NoteRules()
	}
}

// checkLegacy reports whether the filter tables of iptables-legacy are unchanged
// since the last call.
func (w *Watcher) checkLegacy() bool {
	same := true
	for i, v4 := range []bool{true, false} {
		hash, err := w.cfg.Legacy(v4)
		if err != nil {
			continue // the repair reads the table again and reports why that fails
		}
		same = same && hash == w.legacy[i]
		w.legacy[i] = hash
	}
	return same
}
