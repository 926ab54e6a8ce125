package device

import (
	"encoding/json"
	"fmt"
	"regexp"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// recordedDevice is the state of a moved device in Fairlead's record of the host. A
// workload can change the device's alias, but not this record.
type recordedDevice struct {
	savedDevice
	// Type is the link's type. Index is its index on the host; the kernel keeps the
	// index in the sandbox unless another link there has it.
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// DescribeDevice returns the state of a device on the host in the form that
// RecallDevices reads. It returns "" if the device is already in a sandbox or the
// host does not have it.
func (h *Handle) DescribeDevice(d plan.Device) (string, error) {
	if at, err := h.findDevice(d); at != nil || err != nil {
		return "", err
	}
	host, err := h.At("")
	if err != nil {
		return "", err
	}
	name := d.Device
	if plan.PCIAddress(name) {
		if name, err = rtnl.PCILink(name); err != nil {
			return "", nil // Set reports it
		}
	}
	link, err := host.LinkByName(name)
	if nlutil.Absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	saved, err := describeDevice(host, d.Device, link)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(recordedDevice{saved, link.Type(), link.Attrs().Index})
	return string(text), err
}

// RecallDevices replaces the recorded states of moved devices. The map's keys are
// plan.Device.Device; entries that cannot be parsed are ignored. It is safe for
// concurrent use.
func (h *Handle) RecallDevices(devices map[string]string) {
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

// savedState returns a device's state from before it was moved: as this process has
// saved it, or from the record. Without either it takes only the name from the
// alias, because the workload may have written the alias.
func (h *Handle) savedState(d plan.Device, alias savedDevice) savedDevice {
	h.mu.Lock()
	defer h.mu.Unlock()
	if moved, ok := h.devices[d.Key()]; ok {
		return moved.saved
	}
	if r, ok := h.recorded[d.Device]; ok {
		return r.savedDevice
	}
	if !plainName.MatchString(alias.Name) {
		alias.Name = "dev0"
	}
	return savedDevice{Device: d.Device, Name: alias.Name}
}

// plainName matches the names that are accepted from an alias.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// findMarked returns the marked device in a namespace, or nil if it is not there.
// If the device is recorded, only links of the recorded type count, and among
// several marked links the one with the recorded index.
func (h *Handle) findMarked(handle *netlink.Handle, device string) (netlink.Link, savedDevice, error) {
	h.mu.Lock()
	recorded, known := h.recorded[device]
	h.mu.Unlock()
	links, err := nlutil.Retry(handle.LinkList)
	if err != nil {
		return nil, savedDevice{}, fmt.Errorf("list links: %w", err)
	}
	var found netlink.Link
	var alias savedDevice
	for _, l := range links {
		w, ok := parseMark(l)
		if !ok || w.Device != device || known && l.Type() != recorded.Type {
			continue
		}
		if found == nil || known && l.Attrs().Index == recorded.Index {
			found, alias = l, w
		}
	}
	return found, alias, nil
}

// findUnmarked returns the link in a sandbox that has the recorded type and index
// of a device, for the case that the workload has changed the alias. It returns nil
// if the host has the device.
func (h *Handle) findUnmarked(inside *netlink.Handle, device string) (netlink.Link, savedDevice, error) {
	h.mu.Lock()
	recorded, known := h.recorded[device]
	h.mu.Unlock()
	if !known {
		return nil, savedDevice{}, nil
	}
	is := func(l netlink.Link, err error) bool { return err == nil && l.Type() == recorded.Type }
	host, err := h.At("")
	if err != nil {
		return nil, savedDevice{}, err
	}
	if onHost, err := host.LinkByIndex(recorded.Index); is(onHost, err) {
		return nil, savedDevice{}, nil
	}
	l, err := inside.LinkByIndex(recorded.Index)
	if !is(l, err) || rtnl.Ours(l) {
		return nil, savedDevice{}, nil
	}
	return l, savedDevice{}, nil
}

// freeName returns the name if no link has it, and else the first free name devN,
// which the kernel would also choose.
func freeName(handle *netlink.Handle, name string) string {
	for n := 0; ; n++ {
		if _, err := handle.LinkByName(name); err != nil {
			return name
		}
		name = fmt.Sprintf("dev%d", n)
	}
}
