// Looked for in a page: what screen readers need, and texts that are too faint.
({
  faults: () => {
    const wrong = [];
    const seen = (element) => element.checkVisibility({ visibilityProperty: true });
    const short = (element) => element.outerHTML.slice(0, 120);
    const text = (element) => {
      const by = element.getAttribute('aria-labelledby');
      const labelled = by && by.split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join(' ');
      const pictures = [...element.querySelectorAll('img[alt], [aria-label]')].map((each) => each.alt ?? each.getAttribute('aria-label'));
      return (element.getAttribute('aria-label') ?? labelled ?? element.textContent + pictures.join(' ')).trim();
    };
    for (const input of document.querySelectorAll('input, select, textarea')) {
      const labels = [...(input.labels ?? [])].map((label) => label.textContent.trim()).join('');
      if (!labels && !input.getAttribute('aria-label')) wrong.push('no label: ' + short(input));
    }
    for (const button of document.querySelectorAll('button, a[href], summary')) {
      if (seen(button) && !text(button)) wrong.push('no name: ' + short(button));
    }
    for (const image of document.querySelectorAll('img')) {
      if (!image.hasAttribute('alt')) wrong.push('no alt: ' + short(image));
    }
    for (const drawn of document.querySelectorAll('svg')) {
      if (!drawn.getAttribute('aria-label') && !drawn.closest('[aria-hidden=true]')) wrong.push('no name: ' + short(drawn));
    }
    if (document.querySelectorAll('h1').length !== 1) wrong.push('not one h1');
    for (const landmark of ['main', 'header', 'nav']) {
      if (document.querySelectorAll(landmark).length !== 1) wrong.push('not one ' + landmark);
    }
    let level = 1;
    for (const heading of document.querySelectorAll('main :is(h1, h2, h3, h4)')) {
      const now = Number(heading.tagName[1]);
      if (now > level + 1) wrong.push('a level is left out: ' + short(heading));
      level = now;
    }
    for (const table of document.querySelectorAll('table')) {
      if (!table.caption) wrong.push('no caption: ' + short(table));
      for (const head of table.querySelectorAll('th')) {
        if (!head.getAttribute('scope')) wrong.push('no scope: ' + short(head));
        if (!head.textContent.trim() && !head.querySelector('[aria-label]')) wrong.push('an empty header: ' + short(head));
        if (head.querySelector('.sorter') && !head.getAttribute('aria-sort')) wrong.push('no aria-sort: ' + short(head));
      }
    }
    for (const scroller of document.querySelectorAll('.scroll')) {
      if (scroller.tabIndex !== 0 || !scroller.getAttribute('aria-label')) wrong.push('cannot be scrolled by keyboard: ' + short(scroller));
    }
    const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
    for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) wrong.push('twice: #' + id);
    for (const live of ['[role=status]']) if (!document.querySelector(live)) wrong.push('no live region');
    if (!document.documentElement.lang) wrong.push('no language');
    if (!document.title) wrong.push('no title');
    return wrong;
  },

  faintTexts: () => {
    const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const channels = (colour) => {
      probe.clearRect(0, 0, 1, 1);
      probe.fillStyle = colour;
      probe.fillRect(0, 0, 1, 1);
      return [...probe.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (rgb) => {
      const [r, g, b] = rgb.slice(0, 3).map((part) => part / 255).map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
      for (let each = element; each; each = each.parentElement) {
        const colour = channels(getComputedStyle(each).backgroundColor);
        if (colour[3] === 255) return colour;
      }
      return [255, 255, 255, 255];
    };
    const wrong = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest('svg, option, select, :disabled, .unseen, .skip, noscript')) continue;
      const [front, back] = [luminance(channels(getComputedStyle(element).color)), luminance(behind(element))];
      const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
      if (contrast < 4.5) wrong.push(contrast.toFixed(2) + ': ' + element.outerHTML.slice(0, 100));
    }
    return [...new Set(wrong)];
  },
})
