package wording

import (
	"strings"

	"fairlead/internal/model"
)

// NetworkRow returns the cells of a network: NAME, DRIVER, SUBNETS, ADDRESS, PARENT, STATE.
func NetworkRow(n model.Network, state string) []string {
	var subnets, own []string
	for _, s := range n.Subnets {
		subnets = append(subnets, s.Prefix.String())
		if !n.Traits().OnLAN {
			own = append(own, s.HostAddress().String())
		}
	}
	return []string{n.Name, string(n.Driver), OrDash(strings.Join(subnets, " ")), OrDash(strings.Join(own, " ")),
		OrDash(n.Parent), OrDash(state)}
}
