// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

// write is what somebody asks of the API server. Without an old object it is a
// CREATE, without a new one a DELETE.
type write struct {
	who      user.Info
	new, old runtime.Object
}

func (w write) versioned(t *testing.T) *admission.VersionedAttributes {
	t.Helper()
	operation, options, object := admission.Update, runtime.Object(&metav1.UpdateOptions{}), w.new
	switch {
	case w.new == nil:
		operation, options, object = admission.Delete, &metav1.DeleteOptions{}, w.old
	case w.old == nil:
		operation, options = admission.Create, &metav1.CreateOptions{}
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	resource := kinds[0].GroupVersion().WithResource(strings.ToLower(kinds[0].Kind) + "s")
	who := w.who
	if who == nil {
		who = &user.DefaultInfo{Name: "somebody"}
	}
	return &admission.VersionedAttributes{
		Attributes:         admission.NewAttributesRecord(w.new, w.old, kinds[0], "", "", resource, "", operation, options, false, who),
		VersionedObject:    admission.NewLazyObject(w.new),
		VersionedOldObject: admission.NewLazyObject(w.old),
		VersionedKind:      kinds[0],
	}
}

func request(v *admission.VersionedAttributes) *admissionv1.AdmissionRequest {
	return admissioncel.CreateAdmissionRequest(v.Attributes, metav1.GroupVersionResource(v.GetResource()), metav1.GroupVersionKind(v.VersionedKind))
}

// selects tells whether one of a write's objects has the labels.
func selects(t *testing.T, labelSelector *metav1.LabelSelector, v *admission.VersionedAttributes) bool {
	t.Helper()
	if labelSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []runtime.Object{v.GetObject(), v.GetOldObject()} {
		if object == nil {
			continue
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		if selector.Matches(labels.Set(accessor.GetLabels())) {
			return true
		}
	}
	return false
}

// matches tells whether a policy is for such a write at all.
func matches(t *testing.T, constraints *admissionregistrationv1.MatchResources, v *admission.VersionedAttributes) bool {
	t.Helper()
	if !selects(t, constraints.ObjectSelector, v) {
		return false
	}
	for _, rule := range constraints.ResourceRules {
		if slices.Contains(rule.APIGroups, v.GetResource().Group) && slices.Contains(rule.APIVersions, v.GetResource().Version) &&
			slices.Contains(rule.Resources, v.GetResource().Resource) && slices.Contains(rule.Operations, admissionregistrationv1.OperationType(v.GetOperation())) {
			return true
		}
	}
	return false
}

// policy evaluates a ValidatingAdmissionPolicy with the API server's own
// compiler.
type policy struct {
	constraints                       *admissionregistrationv1.MatchResources
	conditions, validations, messages admissioncel.ConditionEvaluator
	compiler                          *admissioncel.CompositedCompiler
}

func compile(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) policy {
	t.Helper()
	if *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("The policy lets pass what it cannot judge: failurePolicy %s", *p.Spec.FailurePolicy)
	}
	compiler := compileVariables(t, p.Spec.Variables)
	var conditions, validations, messages []admissioncel.ExpressionAccessor
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, expression{name: c.Name, text: c.Expression, returns: cel.BoolType})
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, expression{text: v.Expression, returns: cel.BoolType})
		messages = append(messages, expression{text: v.MessageExpression, returns: cel.StringType})
	}
	options := admissioncel.OptionalVariableDeclarations{}
	compiled := policy{
		constraints: p.Spec.MatchConstraints,
		conditions:  compiler.CompileCondition(conditions, options, environment.NewExpressions),
		validations: compiler.CompileCondition(validations, options, environment.NewExpressions),
		messages:    compiler.CompileCondition(messages, options, environment.NewExpressions),
		compiler:    compiler,
	}
	for _, e := range []admissioncel.ConditionEvaluator{compiled.conditions, compiled.validations, compiled.messages} {
		for _, err := range e.CompilationErrors() {
			t.Fatal(err)
		}
	}
	return compiled
}

func compileVariables(t *testing.T, variables []admissionregistrationv1.Variable) *admissioncel.CompositedCompiler {
	t.Helper()
	compiler, err := admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		e := expression{name: v.Name, text: v.Expression, returns: cel.AnyType}
		if result := compiler.CompileAndStoreVariable(e, admissioncel.OptionalVariableDeclarations{}, environment.NewExpressions); result.Error != nil {
			t.Fatalf("Variable %s: %v", v.Name, result.Error)
		}
	}
	return compiler
}

// review returns the message with which the policy denies a write, or nothing.
func (p policy) review(t *testing.T, w write) string {
	t.Helper()
	versioned := w.versioned(t)
	if !matches(t, p.constraints, versioned) {
		return ""
	}
	evaluate := func(e admissioncel.ConditionEvaluator) []admissioncel.EvaluationResult {
		results, _, err := e.ForInput(p.compiler.CreateContext(t.Context()), versioned, request(versioned), admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for _, condition := range evaluate(p.conditions) {
		if condition.Error != nil {
			t.Fatal(condition.Error)
		}
		if condition.EvalResult.Value() != true {
			return ""
		}
	}
	for n, validation := range evaluate(p.validations) {
		if validation.Error != nil {
			t.Fatalf("Validation %d: %v", n, validation.Error)
		}
		if validation.EvalResult.Value() == true {
			continue
		}
		message := evaluate(p.messages)[n]
		if message.Error != nil {
			t.Fatalf("Message of validation %d: %v", n, message.Error)
		}
		return message.EvalResult.Value().(string)
	}
	return ""
}

// expression is what the compiler wants to know about a piece of CEL.
type expression struct {
	name, text string
	returns    *cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.returns} }
