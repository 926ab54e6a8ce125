package suite

import (
	"fmt"
	"strconv"
	"strings"
)

// defaultMTU is the wire's MTU in bytes if a path's name contains none.
const defaultMTU = 1500

// The bounds of a wire's MTU: the minimum of IPv6 (RFC 8200, 5), and the maximum
// of a veth pair.
const (
	minMTU = 1280
	maxMTU = 65535
)

// mtuMark separates a path's name from the MTU of its wire: macvlan-mtu9000. Every
// path can be measured at every MTU, so these paths are not listed.
const mtuMark = "-mtu"

// AtMTUs returns the suite with all of its paths at each MTU, the baseline at the
// first one. It fails if an MTU is out of range, or if a path has an MTU already.
func (s Suite) AtMTUs(mtus []int) (Suite, error) {
	if len(mtus) == 0 {
		return s, nil
	}
	paths, steps := s.Paths, s.Steps
	s.Paths, s.Steps = nil, nil
	for i, mtu := range mtus {
		if mtu < minMTU || mtu > maxMTU {
			return s, fmt.Errorf("mtu %d: want %d to %d bytes", mtu, minMTU, maxMTU)
		}
		for _, name := range paths {
			if p, _ := FindPath(name); p.MTU != defaultMTU {
				return s,
					fmt.Errorf("path %s has an MTU already: give the MTU in the path's name or as a flag, not both",
						name)
			}
			s.Paths = append(s.Paths, atMTU(name, mtu))
		}
		for _, step := range steps {
			s.Steps = append(s.Steps, Step{Name: atMTU(step.Name, mtu), Path: atMTU(step.Path, mtu),
				Over: atMTU(step.Over, mtu)})
		}
		if i == 0 {
			s.Baseline = atMTU(s.Baseline, mtu)
		}
	}
	return s, nil
}

// atMTU returns the name of the path over a wire of that MTU; "" stays "".
func atMTU(path string, mtu int) string {
	if mtu == defaultMTU || path == "" {
		return path
	}
	return path + mtuMark + strconv.Itoa(mtu)
}

// cutMTU splits a path's name into its name and MTU. ok is false if atMTU does not
// return such a name.
func cutMTU(name string) (path string, mtu int, ok bool) {
	path, digits, marked := strings.Cut(name, mtuMark)
	if !marked {
		return name, defaultMTU, true
	}
	mtu, err := strconv.Atoi(digits)
	return path, mtu, err == nil && mtu >= minMTU && mtu <= maxMTU && atMTU(path, mtu) == name
}
