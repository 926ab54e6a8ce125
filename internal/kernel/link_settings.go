package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setLinkSettings writes the settings of the link or links that the object is.
// Whoever makes a link calls it before the link is up: until then the link
// receives nothing, so nothing can use a kernel default.
func (h *Host) setLinkSettings(o plan.Object) error {
	return h.writeSettings(plan.LinkSettings(o))
}

// writeSettings writes settings that differ. It enters each namespace once.
// Settings that the kernel lacks are skipped: one without IPv6 has none for
// IPv6, and so has a link whose MTU is too small for it.
func (h *Host) writeSettings(all []plan.Sysctl) error {
	h.mu.Lock()
	h.seen.confs = nil
	h.mu.Unlock()
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Netns == all[0].Netns {
			n++
		}
		ns, err := h.open(all[0].Netns)
		if err != nil {
			return err
		}
		err = ns.Do(func() error { return writeSettings(all[:n]) })
		ns.Close()
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// writeSettings writes settings of the caller's namespace.
func writeSettings(all []plan.Sysctl) error {
	for _, s := range all {
		err := writeSysctl(sysctlPath(s.Name), s.Value)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}

// confIndex is where a link's settings are in the arrays of a link message
// (IFLA_INET_CONF and IFLA_INET6_CONF; linux/ip.h, linux/ipv6.h), by the part
// of the sysctl's name that is not the link's.
var confIndex = map[string]confAt{
	"net.ipv4.conf..accept_redirects":    {unix.AF_INET, 4 - 1}, // IPV4_DEVCONF_* count from 1
	"net.ipv4.conf..accept_source_route": {unix.AF_INET, 9 - 1},
	"net.ipv6.conf..accept_ra":           {unix.AF_INET6, 3},
	"net.ipv6.conf..accept_redirects":    {unix.AF_INET6, 4},
	"net.ipv6.conf..autoconf":            {unix.AF_INET6, 5},
	"net.ipv6.conf..disable_ipv6":        {unix.AF_INET6, 26},
}

type confAt struct {
	family uint16
	index  int
}

// linkConf holds the settings of a link, by address family.
type linkConf map[uint16][]byte

// linkSetting returns the link's name in a setting's name, and where the link's
// message has the setting.
func linkSetting(s plan.Sysctl) (link string, at confAt, ok bool) {
	parts := strings.Split(s.Name, ".")
	if len(parts) != 5 || parts[3] == "all" || parts[3] == "default" {
		return "", at, false
	}
	link, parts[3] = parts[3], ""
	at, ok = confIndex[strings.Join(parts, ".")]
	return link, at, ok
}

// has reports whether the link has the setting's value. A family that the
// link lacks has nothing to set.
func (c linkConf) has(at confAt, value string) bool {
	array, known := c[at.family]
	if !known || len(array) < 4*(at.index+1) {
		return true
	}
	return strconv.FormatInt(int64(int32(native.Uint32(array[4*at.index:]))), 10) == value
}

// hasLinkSettings reports whether the link or links that the object is have
// its settings.
func (h *Host) hasLinkSettings(o plan.Object) (bool, error) {
	for _, s := range plan.LinkSettings(o) {
		confs, err := h.seenConfs(s.Netns)
		if err != nil {
			return false, err
		}
		link, at, ok := linkSetting(s)
		if !ok {
			return false, fmt.Errorf("%s is not part of a link's message", s.Name)
		}
		if !confs[link].has(at, s.Value) {
			return false, nil
		}
	}
	return true, nil
}

// readIPv6 returns the mode, or IPv6Altered if the object's links have other
// settings than those of its modes.
func (h *Host) readIPv6(o plan.Object, mode plan.IPv6) (plan.IPv6, error) {
	ok, err := h.hasLinkSettings(o)
	if err == nil && !ok {
		mode = plan.IPv6Altered
	}
	return mode, err
}

// seenConfs returns the settings of all links of a namespace, by their names.
func (h *Host) seenConfs(netns string) (map[string]linkConf, error) {
	h.mu.Lock()
	confs, ok := h.seen.confs[netns]
	h.mu.Unlock()
	if ok {
		return confs, nil
	}
	confs, err := h.readConfs(netns)
	if err != nil {
		return nil, fmt.Errorf("list the settings of links: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.confs == nil {
		h.seen.confs = map[string]map[string]linkConf{}
	}
	h.seen.confs[netns] = confs
	return confs, nil
}

// readConfs lists the settings of all links of a namespace.
func (h *Host) readConfs(netns string) (map[string]linkConf, error) {
	ns, err := h.open(netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var messages [][]byte
	err = ns.Do(func() error {
		messages, err = retry(func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
			request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
			request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		return err
	})
	confs := make(map[string]linkConf, len(messages))
	for _, m := range messages {
		name, conf := "", linkConf{}
		attributes(m[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			switch kind {
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(value)
			case unix.IFLA_AF_SPEC:
				attributes(value, conf.take)
			}
		})
		confs[name] = conf
	}
	return confs, err
}

// take keeps what a link's message says of an address family.
func (c linkConf) take(family uint16, value []byte) {
	const inetConf, inet6Conf = 1, 2 // IFLA_INET_CONF, IFLA_INET6_CONF
	attributes(value, func(kind uint16, array []byte) {
		if family == unix.AF_INET && kind == inetConf || family == unix.AF_INET6 && kind == inet6Conf {
			c[family] = array
		}
	})
}
