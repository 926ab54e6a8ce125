package foreign

import (
	"fmt"
	"strings"
)

// settings returns commands that change settings of the host.
func (g *generator) settings() Set {
	var s Set
	for _, setting := range g.some(1+g.IntN(4), hostSettings) {
		s = append(s, "sysctl -qw "+strings.ReplaceAll(setting, "%r", fmt.Sprint(g.IntN(3))))
	}
	return s
}
