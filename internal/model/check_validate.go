package model

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxCheckTime is the upper limit of a check's times.
const maxCheckTime = 366 * 24 * time.Hour

// Validate reports all mistakes in a service's check. The protocol is the
// service's.
func (c Check) Validate(proto Proto) error {
	errs := []error{c.validateType(proto), c.validateTimes(), c.validateWords()}
	for _, e := range []struct{ name, expr string }{{"body", c.Body}, {"expect", c.Expect}} {
		if e.expr == "" {
			continue
		}
		if _, err := regexp.Compile(e.expr); err != nil {
			errs = append(errs, fmt.Errorf("check: %s %q: %w", e.name, e.expr, err))
		}
	}
	if _, err := ParseStatus(c.Status); err != nil {
		errs = append(errs, err)
	}
	if c.Rise < 0 || c.Fall < 0 || c.Rise > 1000 || c.Fall > 1000 {
		errs = append(errs, fmt.Errorf("check: rise %d and fall %d: want 1 to 1000", c.Rise, c.Fall))
	}
	if c.Jitter < -1 || c.Jitter > 50 {
		errs = append(errs, fmt.Errorf("check: jitter %d: want 0 to 50 percent, -1 for none", c.Jitter))
	}
	if c.Initial != "" && c.Initial != InitialUp && c.Initial != InitialDown {
		errs = append(errs, fmt.Errorf("check: initial %q: want up or down", c.Initial))
	}
	return errors.Join(errs...)
}

func (c Check) validateType(proto Proto) error {
	if c.Type != "" && !slices.Contains(CheckTypes(), c.Type) {
		return fmt.Errorf("check %q: want %s", c.Type, OneOf(CheckTypes()))
	}
	switch c.Type {
	case CheckDNS:
		if c.Query == "" {
			return errors.New("check dns: query: want the name to query")
		}
	case CheckExec:
		if len(c.Command) == 0 || !path.IsAbs(c.Command[0]) {
			return errors.New("check exec: want a command with an absolute path")
		}
	}
	if proto == UDP && c.Type == CheckTCP && c.Port == 0 {
		return errors.New("check tcp: the service uses udp: set the TCP port to check, or use a check of type udp")
	}
	return nil
}

func (c Check) validateTimes() error {
	for _, t := range []struct {
		name string
		d    time.Duration
		min  time.Duration
	}{{"interval", c.Interval, 10 * time.Millisecond}, {"fast", c.Fast, 10 * time.Millisecond},
		{"down", c.Down, 10 * time.Millisecond},
		{"timeout", c.Timeout, time.Millisecond}, {"slow start", c.SlowStart, 0}, {"expiry", c.Expiry, 0}} {
		if t.d != 0 && (t.d < t.min || t.d > maxCheckTime) {
			return fmt.Errorf("check: %s %s: want at least %s, and at most 366 days", t.name, t.d, t.min)
		}
	}
	return nil
}

// ParseStatus reads HTTP status codes and ranges of them, "200-299,301"; empty
// is 200-399.
func ParseStatus(s string) ([]PortRange, error) {
	if s == "" {
		s = "200-399"
	}
	var all []PortRange
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || lo < 100 || hi > 599 || hi < lo {
			return nil, fmt.Errorf("check: status %q: want codes and ranges from 100 to 599, e.g. 200-299,301", s)
		}
		all = append(all, PortRange{uint16(lo), uint16(hi)})
	}
	return all, nil
}
