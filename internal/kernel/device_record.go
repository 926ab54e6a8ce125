package kernel

import (
	"encoding/json"
	"fmt"
	"regexp"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// recordedDevice is what the record of the host keeps of a device that is handed
// over. A workload can change the alias, but not the record.
type recordedDevice struct {
	wasDevice
	// Type is the link's, and Index what it was on the host: the kernel keeps it
	// in the sandbox, if no link there has it.
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// DescribeDevice returns what a device of the host's is, for RecallDevices. It is
// empty if the device is handed over already or the host has none.
func (h *Host) DescribeDevice(d plan.Device) (string, error) {
	if at, err := h.findDevice(d); at != nil || err != nil {
		return "", err
	}
	host, err := h.at("")
	if err != nil {
		return "", err
	}
	name := d.Device
	if plan.PCIAddress(name) {
		if name, err = pciLink(name); err != nil {
			return "", nil // Set reports it
		}
	}
	link, err := host.LinkByName(name)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	was, err := describeDevice(host, d.Device, link)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(recordedDevice{was, link.Type(), link.Attrs().Index})
	return string(text), err
}

// RecallDevices replaces what is known of devices that were handed over, by
// plan.Device.Device. An entry that cannot be read counts as absent.
func (h *Host) RecallDevices(devices map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recorded = map[string]recordedDevice{}
	for device, text := range devices {
		var r recordedDevice
		if json.Unmarshal([]byte(text), &r) == nil && r.Device == device {
			h.recorded[device] = r
		}
	}
}

// remembered returns what a device was before it was handed over: as this process
// remembers or as recorded. If neither is there, only the name is taken from the
// alias, which the workload may have written.
func (h *Host) remembered(d plan.Device, alias wasDevice) wasDevice {
	h.mu.Lock()
	defer h.mu.Unlock()
	if placed, ok := h.devices[d.Key()]; ok {
		return placed.was
	}
	if r, ok := h.recorded[d.Device]; ok {
		return r.wasDevice
	}
	if !plainName.MatchString(alias.Name) {
		alias.Name = "dev0"
	}
	return wasDevice{Device: d.Device, Name: alias.Name}
}

// plainName matches the names that are taken from an alias.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// findMarked returns the device in one namespace, nil if it is not there. If a
// record exists, only a link of the recorded type counts, and of several marked
// links the one that has the recorded index.
func (h *Host) findMarked(handle *netlink.Handle, device string) (netlink.Link, wasDevice, error) {
	h.mu.Lock()
	recorded, known := h.recorded[device]
	h.mu.Unlock()
	links, err := retry(handle.LinkList)
	if err != nil {
		return nil, wasDevice{}, fmt.Errorf("list links: %w", err)
	}
	var found netlink.Link
	var alias wasDevice
	for _, l := range links {
		w, ok := was(l)
		if !ok || w.Device != device || known && l.Type() != recorded.Type {
			continue
		}
		if found == nil || known && l.Attrs().Index == recorded.Index {
			found, alias = l, w
		}
	}
	return found, alias, nil
}

// findUnmarked returns the link of a sandbox that has the recorded type and index
// of a device whose alias the workload has changed. It is nil if the host has the
// device.
func (h *Host) findUnmarked(inside *netlink.Handle, device string) (netlink.Link, wasDevice, error) {
	h.mu.Lock()
	recorded, known := h.recorded[device]
	h.mu.Unlock()
	if !known {
		return nil, wasDevice{}, nil
	}
	is := func(l netlink.Link, err error) bool { return err == nil && l.Type() == recorded.Type }
	host, err := h.at("")
	if err != nil {
		return nil, wasDevice{}, err
	}
	if home, err := host.LinkByIndex(recorded.Index); is(home, err) {
		return nil, wasDevice{}, nil
	}
	l, err := inside.LinkByIndex(recorded.Index)
	if !is(l, err) || ours(l) {
		return nil, wasDevice{}, nil
	}
	return l, wasDevice{}, nil
}

// freeName returns the name if no link has it, otherwise the first devN that is
// free, as the kernel does.
func freeName(handle *netlink.Handle, name string) string {
	for n := 0; ; n++ {
		if _, err := handle.LinkByName(name); err != nil {
			return name
		}
		name = fmt.Sprintf("dev%d", n)
	}
}
