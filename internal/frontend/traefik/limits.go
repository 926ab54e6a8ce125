package traefik

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/expression"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// The limits of one container: whoever starts containers shares the gateway with others.
const (
	// maxLabels is in bytes, of the keys and values below "traefik".
	maxLabels = 256 << 10
	// maxExpressions is in instructions of regular expressions, see expression.Size. Compiled, they have about 10 MB.
	maxExpressions = 10 * expression.MaxSize
)

// checkSize returns an error if the labels are too large to be read.
func checkSize(labels map[string]string) error {
	size := 0
	for key, value := range labels {
		if root, _, _ := strings.Cut(key, "."); strings.EqualFold(root, "traefik") {
			size += len(key) + len(value)
		}
	}
	if size > maxLabels {
		return fmt.Errorf("the labels below \"traefik\" have %d bytes: want at most %d: write large configurations to a file of "+
			"the file provider", size, maxLabels)
	}
	return nil
}

// limitExpressions leaves out the routers and middlewares whose regular expressions exceed what a container may
// have. It
// compiles none. What is wrong with an expression itself is reported when it is compiled.
func (b *builder) limitExpressions() {
	left := maxExpressions
	leaveOut := func(object string, size int) bool {
		if left -= size; left >= 0 || size == 0 {
			return false
		}
		b.fail(object, "the regular expressions of the container need more than %d instructions: simplify them",
			maxExpressions)
		return true
	}
	limit(b.config.HTTP.Middlewares, func(name string, m *gateway.Middleware) bool {
		return leaveOut(b.object(middleware, name), expression.Sum(left, m.Expressions()))
	})
	limit(b.config.HTTP.Routers, func(name string, r *gateway.Router) bool {
		return leaveOut(b.object(router, name), sizeOfRule(left, r.Rule, r.RuleSyntax, rule.Read))
	})
	limit(b.config.TCP.Routers, func(name string, r *gateway.TCPRouter) bool {
		return leaveOut(b.object(tcpRouter, name), sizeOfRule(left, r.Rule, r.RuleSyntax, rule.ReadTCP))
	})
}

// limit deletes objects in the order of their names.
func limit[T any](all map[string]*T, leaveOut func(string, *T) bool) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if leaveOut(name, all[name]) {
			delete(all, name)
		}
	}
}

// sizeOfRule returns the size of the expressions in a rule. If nothing is left, it only finds out whether there may
// be any.
func sizeOfRule(left int, text, syntax string, read func(text, syntax string) (*rule.Rule, error)) int {
	if !strings.Contains(strings.ToLower(text), "regexp") && !strings.Contains(text, "{") {
		return 0
	}
	if left < 0 {
		return 1
	}
	return rule.SizeOf(text, syntax, read)
}
