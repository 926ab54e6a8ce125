package hosted

import (
	"math"

	"fairlead/internal/expression"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// SizeOfExpressions returns the size of the regular expressions in the objects of a cluster, see expression.Size. It
// compiles none.
func SizeOfExpressions(c gateway.Config) (size int) {
	for _, m := range c.HTTP.Middlewares {
		size += expression.Sum(math.MaxInt, m.Expressions())
	}
	for _, r := range c.HTTP.Routers {
		size += rule.SizeOf(r.Rule, r.RuleSyntax, rule.Read)
	}
	for _, r := range c.TCP.Routers {
		size += rule.SizeOf(r.Rule, r.RuleSyntax, rule.ReadTCP)
	}
	return size
}
