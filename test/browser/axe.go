package browser

import (
	_ "embed"
	"fmt"
	"strings"
)

// axeSource is axe-core 4.14.1 as its authors publish it (https://github.com/dequelabs/axe-core), under the MPL-2.0.
//
//go:embed axe/axe.min.js
var axeSource string

// AxeChecksum is the SHA-256 of axeSource.
const AxeChecksum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// axeRun runs all rules, with the one for the size of targets, which axe-core leaves out by default.
const axeRun = `axe.run(document, {resultTypes: ["violations"], rules: {"target-size": {enabled: true}}})
	.then(r => r.violations.map(v => ({Rule: v.id, Help: v.help, Parts: v.nodes.map(n => n.target.join(" ") + ": " +
		n.any.concat(n.all, n.none).map(c => c.message).join(", ") + ": " + n.html.slice(0, 200))})))`

// Violation is a rule of axe-core that a page breaks.
type Violation struct {
	Rule, Help string
	// Parts are the elements, with what is wrong with them.
	Parts []string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s (%s):\n\t%s", v.Rule, v.Help, strings.Join(v.Parts, "\n\t"))
}

// Violations returns the rules of axe-core that the page breaks. It needs a page with scripts.
func (p *Page) Violations() (found []Violation) {
	p.t.Helper()
	if !p.axeIsInjected {
		p.Value(axeSource+";0", nil)
		p.axeIsInjected = true
	}
	p.Value(axeRun, &found)
	return found
}
