// The smallest contrast between a text and its background among the elements that the selector matches, by the formula of WCAG:
// [ratio, text]. Colours that shine through are mixed. Highlighted code is left out: its colours repeat what the words say.
selector => {
  const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
  const over = ([r, g, b, a = 1], ground) => [r, g, b].map((v, i) => v * a + ground[i] * (1 - a));
  const light = color => color.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = element => element
    ? over(parse(getComputedStyle(element).backgroundColor), behind(element.parentElement)) : [255, 255, 255];
  const hasText = element => [...element.childNodes].some(it => it.nodeType == Node.TEXT_NODE && it.data.trim());
  let worst = [22, '']; // black on white has 21
  for (const element of document.querySelectorAll(selector)) {
    const isVisible = element.checkVisibility({opacityProperty: true, visibilityProperty: true});
    if (!hasText(element) || !isVisible || element.closest('pre code span, style, script')) continue;
    const ground = behind(element);
    const [a, b] = [light(over(parse(getComputedStyle(element).color), ground)), light(ground)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, element.textContent.trim().slice(0, 60)];
  }
  return worst;
}
